"""A diagonal system read at a lower rate, for layers that have no step size of their own."""

import jax.numpy as jnp

from scans.system import DiagonalSystem


def held_system(system: DiagonalSystem, steps: int) -> DiagonalSystem:
    """The system that takes one step where `system` takes r = `steps` with one and the same input:

        lambda -> lambda^r,   B -> (1 + lambda + ... + lambda^(r - 1)) B   (all gains are in B)

    So a layer trained at one rate reads inputs of 1/r of it, each of which stands for r of the old ones. It is what a
    zero-order hold does for a layer with a step size. Exact for an input that is held: forward states are those of
    `system` at the last of every r steps, backward states those at the first of them.

    Raises ValueError for r < 1, and for a stationary start, whose first step would need a complex gain.
    """
    if steps < 1:
        raise ValueError(f"held: at least one step is needed, got {steps}")
    if steps == 1:
        return system
    if system.start_gain is not None:
        raise ValueError("held: a system with a stationary start has no counterpart at a lower rate")
    # [Re | Im] of the sum by Horner's rule: the quotient (1 - lambda^r) / (1 - lambda) loses digits where lambda is 1.
    re, im = jnp.split(system.transition, 2)
    sum_re, sum_im = jnp.ones_like(re), jnp.zeros_like(im)
    for _ in range(steps - 1):
        sum_re, sum_im = 1 + re * sum_re - im * sum_im, re * sum_im + im * sum_re
    sum_re, sum_im = sum_re[:, None], sum_im[:, None]
    return system._replace(
        log_mag=steps * system.log_mag,
        phase=steps * system.phase,
        b_re=sum_re * system.b_re - sum_im * system.b_im,
        b_im=sum_re * system.b_im + sum_im * system.b_re,
    )
