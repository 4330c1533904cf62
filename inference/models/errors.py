"""Failures of the model store.

ModelNotFound ── UnknownModel      neither a name of the catalog nor a file
EngineFailed ── ModelUnavailable   known, but its files cannot be had
SourceError                       one source has not delivered; caught by `ensure`, which asks the next one
"""

from services.common.errors import EngineFailed, ModelNotFound


class UnknownModel(ModelNotFound):
    pass


class ModelUnavailable(EngineFailed):
    pass


class SourceError(Exception):
    """Its text is the reason, on one line."""
