"""Optimiser groups by parameter path: every parameter in exactly one, decided by what it is for."""

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, assert_never

import jax
import jax.numpy as jnp
import optax

from models.registry import layer_spec
from models.roles import Role
from scans import Choice

Params = Any


class Group(Choice):
    """SSM: Adam at ssm_lr. REGULAR: AdamW at lr. NO_DECAY: Adam at lr (biases, norms, embedding).

    B_SLOW: AdamW at ssm_lr. ELEMENTS: AdamW at its share of lr, see `ElementsRule`. FROZEN: constant.
    """

    SSM = "ssm"
    REGULAR = "regular"
    NO_DECAY = "no_decay"
    B_SLOW = "b_slow"
    ELEMENTS = "elements"
    FROZEN = "frozen"


class GroupOption(Choice):
    """Where B, C, D and the step sizes of the recurrent layers go (lindermanlab/S5, `opt_config` and `dt_global`).

    standard             B: ssm,     C, D: regular,  step sizes: ssm
    BandCdecay           B: b_slow,  C, D: regular,  step sizes: ssm
    BfastandCdecay       B, C, D: regular,           step sizes: ssm
    noBCdecay            B, C, D, step sizes: ssm
    standard_dt_global   B: ssm,     C, D: regular,  step sizes: regular
    """

    STANDARD = "standard"
    B_AND_C_DECAY = "BandCdecay"
    B_FAST_AND_C_DECAY = "BfastandCdecay"
    NO_BC_DECAY = "noBCdecay"
    STANDARD_DT_GLOBAL = "standard_dt_global"


class Schedule(Choice):
    """How a rate moves over a run of `steps` updates, W of them warm-up.

    CLEAN: `cosine_with_warmup`. PUBLISHED: `published_schedule`, that of lindermanlab/S5 with its quirks.
    """

    CLEAN = "clean"
    PUBLISHED = "published"


class Decay(Choice):
    """Which parameters are pulled to 0. CLEAN: those that `Group` says.

    PUBLISHED: as in lindermanlab/S5, where the label meant to spare the norms matches no parameter, so that norms and
    all biases are decayed too; and as in its fork for RotRNN, where the matrix behind the basis is (AdamW at lr).
    """

    CLEAN = "clean"
    PUBLISHED = "published"


class WInScaling(Choice):
    """How W_in of MRU learns. NONE: as the other keys say. PUBLISHED: see `ElementsRule.published`."""

    NONE = "none"
    PUBLISHED = "published"


class ElementsRule(NamedTuple):
    """How ELEMENTS differ from REGULAR: their share of lr, their weight decay (None: the same), and the largest norms
    of the gradients of their group and of each other group (None: not clipped).
    """

    rate: float = 1.0
    weight_decay: float | None = None
    clip: float | None = None
    clip_others: float | None = None

    @classmethod
    def published(cls, rate: float, order: int, length: int) -> "ElementsRule":
        """The scaling of mikayahlevi/mru-lm for n x n matrices and T tokens, whose rate is multiplied by `rate`.

        Rate (1/n) sqrt(2/T), weight decay 0.1, norm of the gradient at most sqrt(T/2), that of other groups at most 1:
        a token acts on T/2 later ones on average. It keeps the elements tiny for long, so it confounds a comparison of
        variants.
        """
        return cls(rate * math.sqrt(2 / length) / order, 0.1, math.sqrt(length / 2), 1.0)


PLAIN = ElementsRule()


def group_of(path: tuple[str, ...], layers: tuple[str, ...], option: GroupOption, decay: Decay = Decay.CLEAN) -> Group:
    """The group of the parameter at `path`, e.g. ("blocks", "0", "layer", "theta"); layers: that of each block.

    Raises ValueError for a path that no rule knows: a renamed parameter must not slip into a default.
    """
    match path:
        case ("blocks", block, "layer", name):
            layer = layers[int(block)]
            roles = layer_spec(layer).roles
            if name not in roles:
                raise ValueError(f"parameter {'/'.join(path)}: layer {layer} gives no role to {name!r}")
            return _group_of_role(roles[name], option, decay)
        case ("blocks", _, "norm", "scale" | "bias") | ("norm", "scale") | ("embedding",) | (*_, "bias"):
            return Group.REGULAR if decay is Decay.PUBLISHED else Group.NO_DECAY
        case ("encoder" | "head", *_, "kernel") | ("blocks", _, "mix", _, "kernel"):
            return Group.REGULAR
    raise ValueError(f"parameter {'/'.join(path)} has no optimiser group")


def _group_of_role(role: Role, option: GroupOption, decay: Decay) -> Group:
    match role:
        case Role.RECURRENCE:
            return Group.SSM
        case Role.BASIS:
            return Group.REGULAR if decay is Decay.PUBLISHED else Group.SSM
        case Role.STEP_SIZE:
            return Group.REGULAR if option is GroupOption.STANDARD_DT_GLOBAL else Group.SSM
        case Role.PROJECTION:
            return Group.REGULAR
        case Role.ELEMENTS:
            return Group.ELEMENTS
        case Role.CONSTANT:
            return Group.FROZEN
        case Role.INPUT | Role.OUTPUT | Role.SKIP:
            match option:
                case GroupOption.STANDARD | GroupOption.STANDARD_DT_GLOBAL:
                    return Group.SSM if role is Role.INPUT else Group.REGULAR
                case GroupOption.B_AND_C_DECAY:
                    return Group.B_SLOW if role is Role.INPUT else Group.REGULAR
                case GroupOption.B_FAST_AND_C_DECAY:
                    return Group.REGULAR
                case GroupOption.NO_BC_DECAY:
                    return Group.SSM
                case unreachable:
                    assert_never(unreachable)
        case unreachable:
            assert_never(unreachable)


def path_names(path: tuple[Any, ...]) -> tuple[str, ...]:
    """A jax key path as names."""
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def groups(params: Params, layers: tuple[str, ...], option: GroupOption, decay: Decay = Decay.CLEAN) -> Params:
    """The group of every parameter, as a tree of the same form."""
    return jax.tree.map_with_path(lambda path, _: group_of(path_names(path), layers, option, decay), params)


def cosine_with_warmup(peak: float, warmup_steps: int, steps: int, lr_min: float = 0.0) -> optax.Schedule:
    """Linear to `peak` over warmup_steps (the first step is not lost at rate 0), then a cosine to lr_min at `steps`."""
    first = peak / max(warmup_steps, 1)
    return optax.warmup_cosine_decay_schedule(first, peak, warmup_steps, max(steps, warmup_steps + 1), lr_min)


def published_schedule(peak: float, warmup_steps: int, steps: int, lr_min: float = 0.0) -> optax.Schedule:
    """The rate of update u = 0, 1, ... in lindermanlab/S5, which sets it *after* each step s, from s:

        r(s) = peak (s + 1) / W                                               s < W
        r(s) = lr_min + (peak - lr_min) (1 + cos(pi min(s, E) / E)) / 2       else, E = steps - W

    so that update 0 runs at the full peak, update u > 0 at r(u - 1), the cosine starts W steps into its course, and the
    last W updates but one run at exactly lr_min.
    """
    cosine_steps = max(steps - warmup_steps, 1)

    def rate(update: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(update) - 1
        warming = peak * (step + 1) / max(warmup_steps, 1)
        cosine = (1 + jnp.cos(jnp.pi * (jnp.minimum(step, cosine_steps) / cosine_steps))) / 2
        after = jnp.where(step < warmup_steps, warming, lr_min + (peak - lr_min) * cosine)
        return jnp.where(step < 0, peak, after)

    return rate


def schedule_of(kind: Schedule) -> Callable[[float, int, int, float], optax.Schedule]:
    """(peak, warmup_steps, steps, lr_min) -> the rate of each update."""
    match kind:
        case Schedule.CLEAN:
            return cosine_with_warmup
        case Schedule.PUBLISHED:
            return published_schedule
        case unreachable:
            assert_never(unreachable)


class Optimiser(NamedTuple):
    """The update rule, and its rate `lr(step)` for the log."""

    transform: optax.GradientTransformation
    lr: optax.Schedule


def make_optimiser(
    params: Params, layers: tuple[str, ...], option: GroupOption, *, lr: float, ssm_lr: float, weight_decay: float,
    warmup_steps: int, steps: int, elements: ElementsRule = PLAIN, schedule: Schedule = Schedule.CLEAN,
    decay: Decay = Decay.CLEAN, lr_min: float = 0.0, b2: float = 0.999, clip: float = 0.0,
) -> Optimiser:  # fmt: skip
    """Adam or AdamW per group (b1 0.9, eps 1e-8), each on its own schedule; see `ElementsRule` for clipping by group.

    lr_min: where the schedules end; ELEMENTS at their share of it, and an ssm_lr below it stays as it is. clip: largest
    norm of the whole gradient, which is scaled down to it; 0 is none.
    """
    rates = (lr, ssm_lr, lr * elements.rate)
    make = schedule_of(schedule)
    ends = (lr_min, min(lr_min, ssm_lr), lr_min * elements.rate)
    fast, slow, own = (make(rate, warmup_steps, steps, end) for rate, end in zip(rates, ends, strict=True))
    own_decay = weight_decay if elements.weight_decay is None else elements.weight_decay
    moving = {
        Group.SSM: optax.adam(slow, b2=b2),
        Group.REGULAR: optax.adamw(fast, b2=b2, weight_decay=weight_decay),
        Group.NO_DECAY: optax.adam(fast, b2=b2),
        Group.B_SLOW: optax.adamw(slow, b2=b2, weight_decay=weight_decay),
        Group.ELEMENTS: optax.adamw(own, b2=b2, weight_decay=own_decay),
    }
    transforms: dict[Hashable, optax.GradientTransformation] = {Group.FROZEN: optax.set_to_zero()}
    for group, rule in moving.items():
        limit = elements.clip if group is Group.ELEMENTS else elements.clip_others
        transforms[group] = rule if limit is None else optax.chain(optax.clip_by_global_norm(limit), rule)
    update = optax.partition(transforms, groups(params, layers, option, decay))
    return Optimiser(optax.chain(optax.clip_by_global_norm(clip), update) if clip else update, fast)


def parameter_table(params: Params, layers: tuple[str, ...], option: GroupOption, decay: Decay = Decay.CLEAN) -> str:
    """One line a parameter: path, shape, group; of blocks with the same layer, which are alike, only the first."""
    leaves = jax.tree.leaves_with_path(params)
    total = sum(leaf.size for _, leaf in leaves)
    first = {name: str(layers.index(name)) for name in dict.fromkeys(layers)}
    lines = [
        f"  {'/'.join(names):<28} {leaf.shape!s:<16} {group_of(names, layers, option, decay)}"
        for names, leaf in ((path_names(path), leaf) for path, leaf in leaves)
        if names[0] != "blocks" or names[1] in first.values()
    ]
    alike = ", ".join(f"{layers.count(name)} blocks like blocks/{place}" for name, place in first.items())
    return "\n".join([f"{total:,} parameters; {alike}", *lines])
