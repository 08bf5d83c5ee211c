"""Training of a model: losses, optimizers, the pass that makes a training module, and what runs it."""

from autosched.relax.training import loss, optimizer, setup_trainer, trainer, utils
from autosched.relax.training.setup_trainer import SetupTrainer
from autosched.relax.training.trainer import Trainer
from autosched.relax.training.utils import AppendLoss

__all__ = ["AppendLoss", "SetupTrainer", "Trainer", "loss", "optimizer", "setup_trainer", "trainer", "utils"]
