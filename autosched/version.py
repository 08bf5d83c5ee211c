"""The version of the package; it stands in artifacts, records and generated kernels."""

__version__ = "0.1.0"
