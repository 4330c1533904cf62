"""Weights: what there is, where it comes from, and whether what lies on disk is what was meant."""

from inference.models.catalog import load_catalog, resolve
from inference.models.errors import ModelUnavailable, UnknownModel
from inference.models.messages import Catalog, File, Model
from inference.models.pull import ensure
from inference.models.settings import ModelSettings

__all__ = [
    "Catalog",
    "File",
    "Model",
    "ModelSettings",
    "ModelUnavailable",
    "UnknownModel",
    "ensure",
    "load_catalog",
    "resolve",
]
