"""TVM's newer name of the loop level's dialect."""

from autosched.script.tir import DIALECT as DIALECT
from autosched.script.tir import __getattr__ as __getattr__
from autosched.script.tir import inline as inline
from autosched.script.tir import macro as macro
from autosched.script.tir import prim_func as prim_func
