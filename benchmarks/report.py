"""How figures are printed: measured, wanted, and whether it was reached."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    name: str
    value: float | str
    unit: str = ""
    most: float | None = None
    """The claim is: at most this."""
    least: float | None = None
    """The claim is: at least this."""

    def line(self) -> str:
        value = f"{self.value:,.4g}" if isinstance(self.value, float) else str(self.value)
        if self.most is None and self.least is None:
            return f"  {self.name:<64} {value} {self.unit}"
        claim = f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}"
        return f"  {self.name:<64} {value} {self.unit}  ({claim}: {'reached' if self.reached() else 'MISSED'})"

    def reached(self) -> bool:
        value = float(self.value)
        return (self.most is None or value <= self.most) and (self.least is None or value >= self.least)


def show(title: str, figures: list[Figure]) -> None:
    print(f"\n{title}", flush=True)
    for figure in figures:
        print(figure.line(), flush=True)
