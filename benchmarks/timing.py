"""Fair timing of programs against each other: compiled first, then run in turn, round by round, in one process."""

import ctypes
import datetime
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike


@dataclass
class Program:
    """A compiled function, a run of it, what compiling it cost, and the times of its runs."""

    name: str
    run: Callable[[], Any]
    compiled: Callable[..., Any]
    compile_seconds: float
    temp_bytes: int
    hlo_ops: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Ratio:
    """Median over rounds of the time of one program over another's, with a 95 % interval of that median."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def tune_allocator() -> str:
    """Keep freed memory in the process, so that large buffers are not mapped and page-faulted anew at every call.

    Call before the first jax allocation, in an entry point: it changes the whole process, and memory is not returned to
    the system. Both sides of a comparison then run under it. Returns the words that tell the reader of a table.
    Raises RuntimeError if glibc refuses a setting.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return "default (the tuned one needs Linux and glibc)"
    settings = {
        "M_MMAP_MAX": (-4, 0),
        "M_TRIM_THRESHOLD": (-1, 2**31 - 1),
        "M_TOP_PAD": (-2, 256 * 2**20),
        "M_ARENA_MAX": (-8, 1),
    }
    mallopt = ctypes.CDLL("libc.so.6").mallopt
    for name, (option, value) in settings.items():
        if mallopt(option, value) != 1:
            raise RuntimeError(f"mallopt refused {name}={value}")
    return "glibc mallopt MMAP_MAX=0 TRIM_THRESHOLD=2^31-1 TOP_PAD=256MiB ARENA_MAX=1"


def compile_program(name: str, function: Callable[..., Any], *args: Any) -> Program:
    """Compile `function`, which may be jitted already, for `args`, with which it is run.

    The seconds are those of the compiler only if jax's persistent cache is off.
    """
    start = time.perf_counter()
    jitted = function if isinstance(function, jax.stages.Wrapped) else jax.jit(function)
    compiled = jitted.lower(*args).compile()
    seconds = time.perf_counter() - start
    memory, text = compiled.memory_analysis(), compiled.as_text()
    assert memory is not None, "no memory analysis on this backend"
    assert text is not None, "no program text on this backend"
    ops = sum(" = " in line for line in text.splitlines())
    run = lambda: jax.block_until_ready(compiled(*args))  # noqa: E731
    return Program(name, run, compiled, seconds, memory.temp_size_in_bytes, ops)


def interleave(programs: Sequence[Program], rounds: int) -> None:
    """Time each program once per round; each round begins with another one. One round before them is not counted."""
    for program in programs:
        program.run()
    for round_ in range(rounds):
        first = round_ % len(programs)
        for program in (*programs[first:], *programs[:first]):
            cpu, wall = time.process_time(), time.perf_counter()
            program.run()
            program.wall.append(time.perf_counter() - wall)
            program.cpu.append(time.process_time() - cpu)


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> Ratio:
    """Median of the ratios within rounds: what disturbs a whole round cancels.

    The interval lies between the order statistics of ranks k and n + 1 - k, k the largest with
    P(Binomial(n, 1/2) < k) <= 2.5 %: it needs no assumption about how times are distributed.
    Raises ValueError for fewer than 6 rounds, from which no such interval can be had, or unequal numbers of them.
    """
    rounds, others = np.size(numerator), np.size(denominator)
    if rounds != others or rounds < 6:
        raise ValueError(f"ratio: needs 6 or more rounds of both, got {rounds} and {others}")
    ratios = np.sort(np.divide(numerator, denominator))
    tails = np.cumsum([math.comb(rounds, k) for k in range(rounds)]) / 2**rounds
    rank = int(np.sum(tails <= 0.025))
    return Ratio(float(np.median(ratios)), float(ratios[rank - 1]), float(ratios[rounds - rank]))


def describe_machine() -> str:
    """Processor, cores, versions, devices, load and date, in one line."""
    device = jax.devices()[0]
    kind = _processor() if device.platform == "cpu" else f"{len(jax.devices())} x {device.device_kind}"
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return f"{kind}, {os.cpu_count()} cores{load}, jax {jax.__version__} on {device.platform}, {date}"


MATMUL = 2048


def matmul(size: int = MATMUL) -> Program:
    """A float32 product of square matrices, 2 size^3 operations: what the machine can do."""
    a = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)), jnp.float32)
    return compile_program("product", lambda a: jnp.matmul(a, a, precision=jax.lax.Precision.HIGHEST), a)


def matmul_rate(size: int = MATMUL, repeats: int = 9) -> float:
    """Best float32 matmul rate seen, in flop/s: what the machine gave while the table was made."""
    product = matmul(size)
    interleave((product,), repeats)
    return 2 * size**3 / min(product.wall)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
