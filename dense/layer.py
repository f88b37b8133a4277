"""The dense recurrence as a flax module: it owns the parameters, `scans` runs them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float

from dense import init
from dense.config import DenseConfig
from dense.parametrize import RealSystem, energies, real_system
from scans import Mask, check_call, cross_covariance, dense_scan, like_activations, mean_at_times, project


class DenseState(NamedTuple):
    """Carried state x (B, W), of complex weights [Re | Im]."""

    x: Float[Array, "B W"]


class Dense(nnx.Module):
    """Linear recurrence with a dense W, nothing constrained or normalised:

        x_t = W x_{t-1} + B u_t,   y_t = Re(C x_t) + D u_t,   x_0 = 0

    u (B, T, D) -> y (B, T, D); n complex or real coordinates; entries of W, B and C start independent, of variance
    gain^2/n, 1/D and 1/n (complex ones circular). Reads forward only.
    Source: the layer of arXiv 2605.05113, whose h_0 is x_1 here.
    """

    def __init__(self, config: DenseConfig, *, rngs: nnx.Rngs):
        width, n, weights = config.width, config.state_size, config.weights
        self.config = config
        self.heads = n
        self.W = nnx.Param(init.glorot(rngs.params(), n, n, weights, config.gain))
        self.B = nnx.Param(init.glorot(rngs.params(), n, width, weights))
        self.C = nnx.Param(init.glorot(rngs.params(), width, n, weights))
        self.D = nnx.Param(jax.random.normal(rngs.params(), (width,)))

    def system(self) -> RealSystem:
        """The system of the present parameters, on real numbers."""
        return real_system(W=self.W[...], B=self.B[...], C=self.C[...], D=self.D[...])

    def initial_state(self, batch: int) -> DenseState:
        """The state before the first input: zero."""
        return DenseState(jnp.zeros((batch, self.config.real_state_size), self.W[...].dtype))

    def __call__(
        self,
        u: Float[Array, "B T D"],
        state: DenseState | None = None,
        *,
        mask: Mask | None = None,
        reset: Bool[Array, "B T"] | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> tuple[Float[Array, "B T D"], DenseState, dict[str, Array]]:
        """The layer over whole sequences. Masked steps hold the state and give y = 0.

        Returns y, the state after the last valid step, and diagnostics: empty, or with `probe` those of `diagnose`.
        Raises ValueError for an input of another width or a carried state of another form.
        """
        mask = check_call("dense", u, self.config.width, self.initial_state, state, mask, reset)
        if mask is not None:
            u = jnp.where(mask[..., None], u, 0)
        system = self.system()
        x, last = dense_scan(
            system.w, project(u, system.b.T), None if state is None else state.x, mask=mask, reset=reset
        )
        y = like_activations(project(x, system.c.T, u.dtype) + system.d * u, u)
        if mask is not None:
            y = jnp.where(mask[..., None], y, 0)
        diagnostics = {} if probe is None else diagnose(system, u, x, mask, self.config.state_size, probe)
        return y, DenseState(last), diagnostics

    def step(
        self, u_t: Float[Array, "B D"], state: DenseState, *, reset: Bool[Array, " B"] | None = None
    ) -> tuple[Float[Array, "B D"], DenseState]:
        """One token. Equal to the same token inside a whole sequence."""
        y, state, _ = self(u_t[:, None], state, reset=None if reset is None else reset[:, None])
        return y[:, 0], state


def diagnose(
    system: RealSystem,
    u: Float[Array, "B T D"],
    x: Float[Array, "B T W"],
    mask: Bool[Array, "B T"] | None,
    n: int,
    times: tuple[int, ...],
) -> dict[str, Any]:
    """Energies per coordinate of the state; no gradient flows.

    energy: mean of |x_i|^2 over valid steps (n,); energy_t: its sum over coordinates at the asked times (K,); gain:
    |B_i|^2, the energy that one white unit input brings (n,); log_decay: -inf; white_t and coloured_t (K,): see
    `white_energy` and `coloured_energy`.

    There is no stationary energy to be the gain: the mean over draws of W grows without bound at every g. In units of
    one input, white_t / sum of gain is in the mean over draws of complex weights the S_{n,t-1} of `theory.dense` (t for
    orthogonal ones).
    """
    system, u, x = lax.stop_gradient((system, u, x))
    mask = jnp.ones(x.shape[:2], bool) if mask is None else mask
    square = energies(x**2, n)
    gain = energies((system.b**2).sum(1), n)
    return {
        "energy": jnp.where(mask[..., None], square, 0).sum((0, 1)) / mask.sum(),
        "energy_t": mean_at_times(square.sum(-1), mask, times, False),
        "gain": gain,
        "log_decay": jnp.full_like(gain, -jnp.inf),
        "white_t": white_energy(system, times),
        "coloured_t": coloured_energy(system, cross_covariance(project(u, system.b.T), mask), times),
    }


def white_energy(system: RealSystem, times: tuple[int, ...]) -> Float[Array, " K"]:
    """E|x_t|^2 = sum_{k<t} |W^k B|_F^2 of these parameters under white unit inputs."""

    def step(reached, _):
        return jnp.matmul(system.w, reached, precision=lax.Precision.HIGHEST), (reached**2).sum()

    _, by_lag = lax.scan(step, system.b, length=max(times))
    return jnp.cumsum(by_lag)[jnp.asarray(times) - 1]


def coloured_energy(system: RealSystem, r: Float[Array, "T W W"], times: tuple[int, ...]) -> Float[Array, " K"]:
    """E|x_t|^2 = sum_{k,l<t} tr W^k R(l - k) (W^l)^T for stationary w = B u, R(tau) = E w_s w_{s-tau}^T, by

    S_t = W S_{t-1} W^T + W G_{t-1} + (W G_{t-1})^T + R(0),   G_t = E x_t w_{t+1}^T = sum_{k<t} W^k R(k+1)^T.
    """
    matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

    def step(carry, lag):
        covariance, crossed, power = carry
        crossed = crossed + matmul(power, lag.T)
        new = matmul(system.w, crossed)
        covariance = matmul(matmul(system.w, covariance), system.w.T) + new + new.T + r[0]
        return (covariance, crossed, matmul(system.w, power)), jnp.trace(covariance)

    start = r[0], jnp.zeros_like(r[0]), jnp.eye(len(r[0]), dtype=r.dtype)
    _, later = lax.scan(step, start, r[1 : max(times)])
    return jnp.concatenate([jnp.trace(r[0])[None], later])[jnp.asarray(times) - 1]
