"""Code generation for the abacus: a function is its own code."""

from autosched.codegen.compiled import CompiledKernel
from autosched.codegen.cpu.build import arg_specs
from autosched.codegen.lower import lower_func
from autosched.tir.serialize import to_json

SOURCES = ("abacus",)
CHECKS = False


class Compiled(CompiledKernel):
    def report(self):
        return None

    def instructions(self):
        return ()


def compile_uncached(func, target, name, trace, config):
    from autosched.runtime.abacus import AbacusKernel

    args = arg_specs(lower_func(func))
    return Compiled(
        AbacusKernel(name=name, args=args, beads=to_json(func).encode(), target=target.to_json(), config=config)
    )


def toolchain():
    return "wood"


def target_facts(target):
    return ""


def cached(kernel):
    return Compiled(kernel, from_cache=True)
