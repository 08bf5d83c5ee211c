"""Templates: how a function without a schedule gets one, from a small space of good ones."""

from autosched.templates.base import Anchor, Applied, Template, schedule_attrs
from autosched.templates.pack import Pack, Packing, repack
from autosched.templates.registry import (
    all_templates, apply_config, default_config, convolves_planes, joins_convolutions, layout_blocks,
    multiplies_bytes, narrows_attention, narrows_convolution, product_types, schedule_sizes,
    shares_heads, space_for, splits_products, streams_bfloat16, sums_columns, template_named, template_versions,
    templates_for, tile_blocks, widened_dtypes, widens_bytes,
)  # fmt: skip
