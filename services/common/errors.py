"""The one hierarchy of errors.

AntiphonError
 ├─ InvalidRequest 400 ── ContextLengthExceeded
 ├─ ContentRefused 400
 ├─ InvalidApiKey 401 ── NotSignedIn
 ├─ Forbidden 403 ── MissingScope
 ├─ NotFound 404 ── ModelNotFound
 ├─ MethodNotAllowed 405
 ├─ Conflict 409 ── IdempotencyInProgress
 ├─ TooLarge 413
 ├─ Misdirected 421
 ├─ IdempotencyMismatch 422
 ├─ RateLimited 429 ── QuotaExceeded, TooManyAttempts
 ├─ Overloaded 503 ── EngineFailed
 ├─ DeadlineExceeded 504
 └─ InternalError 500  a fault of ours; its cause is in the log, never in the answer
"""

from typing import Any, ClassVar

from msgspec import Struct

from services.common.messages import Admitted


class AntiphonError(Exception):
    """An expected failure that knows how it looks on the wire (SEMANTICS: Errors)."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = None

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after: float | None = None
    ):
        super().__init__(message)
        self.message = message
        self.param = param
        self.wire_code = code or self.code
        self.retry_after = retry_after
        """Seconds after which the same request may succeed."""

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.wire_code}}


class InvalidRequest(AntiphonError):
    status, type = 400, "invalid_request_error"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"


class ContentRefused(AntiphonError):
    status, type, code = 400, "invalid_request_error", "content_policy_violation"


class InvalidApiKey(AntiphonError):
    status, type, code = 401, "invalid_request_error", "invalid_api_key"


class NotSignedIn(InvalidApiKey):
    """Of the web app: no session, or wrong e-mail or password, which are not told apart."""

    code = "not_signed_in"


class Forbidden(AntiphonError):
    status, type, code = 403, "invalid_request_error", "forbidden"


class MissingScope(Forbidden):
    code = "missing_scope"


class NotFound(AntiphonError):
    status, type, code = 404, "invalid_request_error", "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"

    @classmethod
    def named(cls, model: str) -> "ModelNotFound":
        return cls(f"The model `{model}` does not exist or you do not have access to it.", param="model")


class MethodNotAllowed(AntiphonError):
    status, type, code = 405, "invalid_request_error", "method_not_allowed"
    allowed = "POST"
    """The methods of the route, as the Allow header lists them."""


class Conflict(AntiphonError):
    status, type, code = 409, "invalid_request_error", "conflict"


class IdempotencyInProgress(Conflict):
    code = "idempotency_key_in_progress"


class TooLarge(AntiphonError):
    status, type, code = 413, "invalid_request_error", "request_too_large"


class Misdirected(AntiphonError):
    """The caller's organisation is at home in another region; the message names the host there, if it is known."""

    status, type, code = 421, "invalid_request_error", "wrong_region"


class IdempotencyMismatch(AntiphonError):
    status, type, code = 422, "invalid_request_error", "idempotency_key_reused"


class RateLimited(AntiphonError):
    """`retry_after` is right to the second; `admitted` goes into the x-ratelimit headers."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"
    admitted = Admitted()


class QuotaExceeded(RateLimited):
    """A budget is used up: waiting a little does not help."""

    type, code = "insufficient_quota", "insufficient_quota"


class TooManyAttempts(RateLimited):
    """Of guesses at a password."""

    code = "too_many_attempts"


class Overloaded(AntiphonError):
    status, type, code = 503, "server_error", "overloaded"


class EngineFailed(Overloaded):
    code = "engine_failed"


class DeadlineExceeded(AntiphonError):
    status, type, code = 504, "server_error", "deadline_exceeded"


class InternalError(AntiphonError):
    status, type, code = 500, "server_error", "internal_error"


def _tree(cls: type[AntiphonError]) -> dict[str, type[AntiphonError]]:
    found = {cls.__name__: cls}
    for child in cls.__subclasses__():
        found |= _tree(child)
    return found


class PortError(Struct, frozen=True):
    """An error on its way through a port over HTTP: enough to raise the same one on the other side."""

    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, error: AntiphonError) -> "PortError":
        return cls(type(error).__name__, error.message, error.param, error.wire_code, error.retry_after)

    def error(self) -> AntiphonError:
        cls = _tree(AntiphonError).get(self.kind, InternalError)
        return cls(self.message, param=self.param, code=self.code, retry_after=self.retry_after)
