from tests.support.command_line import antiphon

__all__ = ["antiphon"]
