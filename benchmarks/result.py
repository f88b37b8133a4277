"""What a benchmark finds, against what is wanted."""

from dataclasses import dataclass
from typing import Any

from benchmarks.timing import Program, Ratio, ratio


@dataclass(frozen=True)
class Result:
    """A measured value. spread: its 95 % interval. target: at least this, or with `ceiling` at most; None is a fact."""

    name: str
    value: float
    unit: str = "x"
    spread: tuple[float, float] | None = None
    target: float | None = None
    ceiling: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the interval reaches the target; None without one."""
        if self.target is None:
            return None
        low, high = self.spread or (self.value, self.value)
        return low <= self.target if self.ceiling else high >= self.target

    @property
    def wanted(self) -> str:
        """The target in words; empty without one."""
        return "" if self.target is None else f"{'<=' if self.ceiling else '>='} {self.target:g}"

    def record(self) -> dict[str, Any]:
        """The entry of bench.json."""
        return {
            "name": self.name,
            "target": self.wanted,
            "value": self.value,
            "unit": self.unit,
            "spread": self.spread,
            "met": self.met,
        }

    def row(self) -> str:
        """The row of the table."""
        spread = "" if self.spread is None else f" [{self.spread[0]:.3g}, {self.spread[1]:.3g}]"
        met = {None: "", True: "yes", False: "**no**"}[self.met]
        return f"| {self.name} | {self.wanted} | {self.value:.4g}{spread} | {self.unit} | {met} |"


HEAD = "| what | target | measured, 95 % interval | unit | met |\n|---|---|---|---|---|"


def of_ratio(name: str, found: Ratio, target: float | None = None, *, ceiling: bool = False) -> Result:
    """A ratio of times as a result."""
    return Result(name, found.median, "x", (found.low, found.high), target, ceiling)


def faster(name: str, slow: Program, fast: Program, target: float | None) -> Result:
    """How many times faster `fast` is, by the times of both."""
    return of_ratio(name, ratio(slow.wall, fast.wall), target)


def milliseconds(name: str, program: Program) -> Result:
    """The shortest time of a program: a fact, without target."""
    return Result(f"{name}: {program.name}", 1e3 * min(program.wall), "ms")


def smaller(name: str, large: Program, small: Program, target: float) -> Result:
    """How many times less temporary memory `small` takes, as its compiler counts it."""
    return Result(name, large.temp_bytes / small.temp_bytes, "x less temporary memory", target=target)
