"""The exponential of skew matrices against jax.scipy's: time, compile time and accuracy; prints a Markdown table.

    python -m benchmarks.orthogonal

Value and gradient, float32. Errors are the largest entries of the difference to SciPy's value in float64, and of
Q^T Q - I; the gradient's relative to its largest entry, against scipy.linalg.expm_frechet.
"""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

from benchmarks import timing
from linalg import expm_skew, skew

CASES = [(64, 2, 23.0), (32, 4, 1.0), (8, 8, 1.0), (8, 128, 1.0), (8, 128, 10.0)]
"""(matrices, order, standard deviation of the entries of M); at order 2 the angle itself."""


def skew_matrices(count: int, order: int, size: float) -> np.ndarray:
    """K = M - M^T for normal M, or of the given angle at order 2."""
    if order == 2:
        return np.tile(np.array([[0, -size], [size, 0]], np.float32), (count, 1, 1))
    m = np.random.default_rng(0).normal(scale=size, size=(count, order, order))
    return np.asarray(skew(jnp.asarray(m, jnp.float32)))


def main() -> None:
    """Prints the table."""
    jax.config.update("jax_enable_compilation_cache", False)
    print(f"{timing.describe_machine()}\n")
    print("| matrices | order | norm | form | ms | compile s | value error | orthogonality | gradient error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for count, order, size in CASES:
        k = skew_matrices(count, order, size)
        g = np.random.default_rng(1).normal(size=k.shape).astype(np.float32)
        expected = np.stack([scipy.linalg.expm(x) for x in k.astype(float)])
        adjoint = np.asarray(scipy.linalg.expm_frechet(k[0].astype(float).T, g[0].astype(float), compute_expm=False))
        adjoint = (adjoint - adjoint.T) / 2
        forms = {"linalg.expm_skew": expm_skew, "jax.scipy.linalg.expm": jax.scipy.linalg.expm}
        programs = []
        for name, form in forms.items():

            def run(k, g, form=form):
                q, vjp = jax.vjp(form, k)
                return q, vjp(g)[0]

            programs.append(timing.compile_program(name, run, jnp.asarray(k), jnp.asarray(g)))
        timing.interleave(programs, 21)
        for program in programs:
            q, dk = (np.asarray(x, float) for x in program.run())
            value = np.abs(q - expected).max()
            orthogonality = np.abs(np.swapaxes(q, 1, 2) @ q - np.eye(order)).max()
            gradient = np.abs((dk[0] - dk[0].T) / 2 - adjoint).max() / np.abs(adjoint).max()
            print(
                f"| {count} | {order} | {np.linalg.norm(k[0], 2):.0f} | {program.name} | {1e3 * min(program.wall):.2f} "
                f"| {program.compile_seconds:.1f} | {value:.0e} | {orthogonality:.0e} | {gradient:.0e} |"
            )


if __name__ == "__main__":
    main()
