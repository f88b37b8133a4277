"""The page of the MRU study, made from docs/studies/mru.json alone: tables, figure, and a verdict on each claim."""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from configs import mru_study
from scripts import figures

Record = dict[str, Any]
"""One model: see `scripts.mru_study.run_model`."""

FIGURE = Path("docs/figures/mru_study.png")
BIGRAM = (2.45, 2.55)
"""Where a network that sees one token ends, in nats: bigrams have 2.455 in training and 2.482 in validation."""
STABILISED = tuple(f"mru_{variant}" for variant in mru_study.VARIANTS if variant != "identity")
ORTHOGONAL = ("mru_orthogonal_cayley", "mru_orthogonal_expm")
SHEARING = ("mru_ldu", "mru_qr_cayley", "mru_qr_expm")

HEAD = """# Matrix recurrent units on shakespeare-char

The study of [mikayahlevi/mru-lm](https://github.com/mikayahlevi/mru-lm) at the size of a CPU, with seeds and error
bars: one mixing layer and four MLPs, width 128, windows of 128, batches of 8, 1,500 updates (1.5 epochs of the one
million characters), float32; the state of MRU, RotRNN, LRU and S5 is 128 numbers (linear attention: 4,224). A model has
533,248 (mlp) to 598,912 parameters (attention); `train.py --print` says those of a CONFIG.
[configs/mru_study.py](../../configs/mru_study.py) has all models and the recipe.

`python -m scripts.mru_study`, {machine}, {dates}; every row is also a run of its own:
`python train.py --config=configs/mru_study.py:CONFIG --workdir=DIR` with the CONFIG of the last table.

Every model had six trials of 500 updates with a seed that is not used again, over its rate and, where it has one, over
the rate of what makes its recurrence (W_in of an MRU; the spectrum of RotRNN, LRU and S5), as a share of the first.
Then {seeds} seeds were trained in one program: the same seed means the same order of the data and, among models of one
family, the same initial draws of what they share.

![train and validation loss, loss by position](../figures/mru_study.png)

Validation loss in nats per character over the whole split (111,539 targets, windows of 128, each started fresh), mean ±
standard deviation over seeds. *best*: the lowest of the eleven evaluations of each seed, an optimistic number, and the
mean of their updates. *carried*: the state goes on from window to window (attention: windows that overlap by half),
seeds whose loss is finite; most MRU lose their state beyond the trained length. *4T*: windows of 512, mean over seeds.
*against mlp*: mean of the paired differences with its 95 % interval (t, over seeds). In the figure *training* is the
mean loss of the 50 batches before; what leaves a panel is above 2.8.
"""


def report(records: Sequence[Record]) -> str:
    """The page, in markdown."""
    if not records:
        return HEAD.partition("\n")[0] + "\n"
    found = {record["model"]: record for record in records}
    dates = sorted({record["date"] for record in records})
    head = HEAD.format(
        machine=records[0]["machine"],
        dates=dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        seeds=len(records[0]["final"]["seeds"]),
    )
    missing = [model for model in mru_study.MODELS if model not in found]
    unfinished = [f"Not run yet: {', '.join(missing)}.", ""] if missing else []
    return "\n".join(
        [head, *unfinished, *_table(found), "", *_claims(found), "", *_spikes(found), "", *_search(found), ""]
    )


def losses(record: Record, key: str = "loss") -> dict[str, float]:
    """Seed -> loss of the final runs; infinite for a seed that did not stay finite, wherever it was held since."""
    lost = {s for s, v in record["final"]["seeds"].items() if v[key] is None or v["nonfinite_step"] is not None}
    return {s: math.inf if s in lost else v[key] for s, v in record["final"]["seeds"].items()}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of the 95 % interval of Student's t; the half is infinite for one value, both if not all are
    finite."""
    if not all(map(math.isfinite, values)):
        return math.inf, math.inf
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.inf
    return mean, float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def paired(first: Record, second: Record) -> tuple[float, float]:
    """Mean of loss(first) - loss(second) over the seeds of both, and half of its 95 % interval."""
    one, other = losses(first), losses(second)
    return interval([one[seed] - other[seed] for seed in one.keys() & other.keys()])


def _table(found: dict[str, Record]) -> list[str]:
    lines = [
        "| model | loss | bits | best, at update | carried | 4T | against mlp |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, record in sorted(found.items(), key=lambda item: statistics.fmean(losses(item[1]).values())):
        final = record["final"]
        values, best = list(losses(record).values()), list(losses(record, "best_loss").values())
        steps = statistics.fmean(v["best_step"] for v in final["seeds"].values())
        carried = _spread(list(final["carried"].values())) if "carried" in final else "-"
        against = _signed(*paired(record, found["mlp"])) if "mlp" in found and model != "mlp" else "-"
        longest = _spread([statistics.fmean(x) for x in [final["by_position_longest"]] if x])
        lines.append(
            f"| {model} | {_spread(values)} | {statistics.fmean(values) / math.log(2):.3f} "
            f"| {_spread(best)}, {steps:.0f} | {carried} | {longest} | {against} |"
        )
    return lines


def _claims(found: dict[str, Record]) -> list[str]:
    """A verdict for each claim whose models are there."""
    rows = [(needs, verdict) for needs, verdict in _CLAIMS if found.keys() >= set(needs)]
    lines = ["## Claims", "", "A difference counts if its 95 % interval leaves out 0; intervals are not corrected for"]
    lines += [
        f"their number. Differences in nats, at the last update.{chr(10)}",
        *(verdict(found) for _, verdict in rows),
    ]
    return lines


def _spiking(found: dict[str, Record]) -> str:
    def spikes(model: str) -> list[float]:
        """Per 1,000 updates, of each seed; infinite for one that did not stay finite."""
        seeds = found[model]["spikes"]["none"]["seeds"].values()
        return [math.inf if s["nonfinite_step"] is not None else s["spikes_per_1000"] for s in seeds]

    counts = {model: spikes(model) for model in ("mru_identity", *STABILISED)}
    still = [model.removeprefix("mru_") for model in STABILISED if max(counts[model]) > 0]
    if max(counts["mru_identity"]) == 0:
        verdict = "**Not decided**: identity has no spikes in 500 updates at this size"
    else:
        verdict = f"**Does not hold** of {', '.join(still)}" if still else "**Holds**"
    shown = ", ".join(f"{model.removeprefix('mru_')} {_counts(values)}" for model, values in counts.items())
    return (
        f"1. *Every stabilised variant removes the loss spikes of identity.* {verdict}. With W_in at the full rate, "
        f"spikes per 1,000 updates of each seed: {shown}. The next table has what they had learned by then, and the "
        f"author's scaling of W_in. In the final runs, {_final_spikes(found)}."
    )


def _final_spikes(found: dict[str, Record]) -> str:
    ends = [seed for record in found.values() for seed in record["final"]["seeds"].values()]
    spiked = sum((seed["spikes_per_1000"] or 0) > 0 for seed in ends)
    lost = sum(seed["nonfinite_step"] is not None for seed in ends)
    return f"{spiked} of {len(ends)} seeds of all models had a spike and {lost} a value that was not finite"


def _counts(values: Sequence[float]) -> str:
    return " ".join(f"{value:.0f}" if math.isfinite(value) else "not-finite" for value in values)


def _determinant(found: dict[str, Record]) -> str:
    mean, half = paired(found["mru_determinant"], found["mru_identity"])
    control, spread = paired(found["mru_identity_normalised"], found["mru_identity"])
    return (
        f"2. *determinant is worse than the unscaled identity, whose decay is a shortcut.* Worse: "
        f"{_verdict(mean, half)}, determinant - identity {_signed(mean, half)}. A shortcut, without which identity "
        f"would be worse: {_verdict(control, spread)}, identity with a normalised output, which has no use "
        f"for a decay, - identity {_signed(control, spread)}. A determinant with a learned scalar was not run."
    )


def _context(found: dict[str, Record]) -> str:
    mlp, reference = losses(found["mlp"]), losses(found["mru_qr_cayley"])
    gain, error = paired(found["mlp"], found["mru_qr_cayley"])
    if not math.isfinite(gain):
        return "3. *Orthogonal variants mostly fail to use context.* **Not decided**: not finite in a seed."
    if gain <= error:
        return "3. *Orthogonal variants mostly fail to use context.* **Not decided**: qr_cayley gains nothing here."
    shares = {
        model: interval([(mlp[s] - loss) / (mlp[s] - reference[s]) for s, loss in losses(found[model]).items()])
        for model in ORTHOGONAL
    }
    above = all(mean - half > 0.5 for mean, half in shares.values())
    below = all(mean + half < 0.5 for mean, half in shares.values())
    verdict = "**Holds**" if below else "**Does not hold**" if above else "**Not decided**"
    shown = ", ".join(f"{model.removeprefix('mru_')} {mean:.2f} ± {half:.2f}" for model, (mean, half) in shares.items())
    difference = paired(found[ORTHOGONAL[0]], found[ORTHOGONAL[1]])
    agree = "no difference seen" if abs(difference[0]) <= difference[1] else "they differ"
    return (
        f"3. *Orthogonal variants mostly fail to use context: closer to the MLP than to qr_cayley.* {verdict}: share "
        f"of qr_cayley's gain over the MLP (below one half would be closer to the MLP): {shown}. Cayley - exponential "
        f"{_signed(*difference)}: {agree}."
    )


def _shears(found: dict[str, Record]) -> str:
    differences = {
        (shearing, rotating): paired(found[shearing], found[rotating])
        for shearing in SHEARING
        for rotating in ORTHOGONAL
    }
    lower = all(mean + half < 0 for mean, half in differences.values())
    higher = all(mean - half > 0 for mean, half in differences.values())
    verdict = "**Holds**" if lower else "**Does not hold**" if higher else "**Not in every pair**"
    worst = max(differences.items(), key=lambda item: sum(item[1]))
    others = [model for model in found if model in (*STABILISED, "mru_identity") and model != "mru_ldu"]
    best = min(others, key=lambda model: statistics.fmean(losses(found[model]).values()))
    mean, half = paired(found["mru_ldu"], found[best])
    return (
        f"4. *Shears matter: qr and ldu are better than orthogonal; ldu is the best.* "
        f"{verdict} for shears: of the six pairs the one whose interval comes nearest to 0 is "
        f"{worst[0][0].removeprefix('mru_')} - {worst[0][1].removeprefix('mru_')} {_signed(*worst[1])}. "
        f"ldu the best: {_verdict(mean, half, sign=-1)}: ldu - {best.removeprefix('mru_')}, the best of the "
        f"others (chosen on the same seeds), {_signed(mean, half)}. Other numbers and orders of heads were not run."
    )


def _transformers(found: dict[str, Record]) -> str:
    transformers = ("attention_rope", "attention_none", "attention_xpos_512", *_LINEAR)
    normalised = [model for model in found if model == "mru_identity_normalised"]
    variants = [model for model in found if model in (*STABILISED, "mru_identity")]
    best = min(variants, key=lambda model: statistics.fmean(losses(found[model]).values()))
    shown = "; ".join(
        f"{model.removeprefix('mru_')} - "
        + ", ".join(f"{other} {_signed(*paired(found[model], found[other]))}" for other in transformers)
        for model in (best, *normalised)
    )
    positions = _signed(*paired(found["linear_attention_none"], found["linear_attention_rope"]))
    decay = _signed(*paired(found["attention_none"], found["attention_xpos_512"]))
    return (
        f"6. *The linear transformer as one more baseline; positions.* The best of the seven variants (chosen on the "
        f"same seeds), and the control of claim 2: {shown}. Linear attention without - with RoPE {positions}; "
        f"attention without - with xpos_512 {decay}.\n"
        f"- Claims 5 and 7 need the published sizes: **Not decided**."
    )


def _acceptance(found: dict[str, Record]) -> str:
    mlp = statistics.fmean(losses(found["mlp"]).values())
    inside = "inside" if BIGRAM[0] <= mlp <= BIGRAM[1] else "OUTSIDE"
    mean, half = paired(found["attention_none"], found["attention_rope"])
    return (
        f"- *RoPE beats no positions.* {_verdict(mean, half)}: attention without - with RoPE {_signed(mean, half)}.\n"
        f"- *A network of MLPs ends at the bigrams.* It sees one token; it ends at {mlp:.3f}, {inside} {BIGRAM[0]} to "
        f"{BIGRAM[1]}."
    )


_LINEAR = ("linear_attention_rope", "linear_attention_none")
_CLAIMS: tuple[tuple[tuple[str, ...], Callable[[dict[str, Record]], str]], ...] = (
    (("mru_identity", *STABILISED), _spiking),
    (("mru_determinant", "mru_identity", "mru_identity_normalised"), _determinant),
    (("mlp", "mru_qr_cayley", *ORTHOGONAL), _context),
    (("mru_identity", *STABILISED), _shears),
    (("attention_rope", "attention_none", "attention_xpos_512", *_LINEAR, "mru_ldu"), _transformers),
    (("mlp", "attention_rope", "attention_none"), _acceptance),
)
"""The models that a claim is about, and what is said of it. Claims 5 and 7 need larger models."""


def _spikes(found: dict[str, Record]) -> list[str]:
    lines = [
        "## How smoothly the variants train",
        "",
        "W_in at the full rate of 1e-3, 500 updates, three seeds; *author*: his scaling of W_in, which also clips each",
        "group of parameters by itself. Spikes per 1,000 updates (a loss of more than half a nat, and more than six",
        "robust deviations, above the median of the 100 updates before), largest gradient norm over its running",
        "median, seeds that met a value that was not finite, loss. A variant that ends where an MLP does at that rate",
        "has not used its context yet, so that it had little to spike with.",
        "",
        "| variant | spikes | peak | not finite | loss | author: spikes | peak | not finite | loss |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for model, record in found.items():
        if record["spikes"]:
            cells = [_smoothness(record["spikes"][scaling]["seeds"]) for scaling in ("none", "published")]
            lines.append(f"| {model.removeprefix('mru_')} | {' | '.join(cells)} |")
    return lines


def _smoothness(seeds: dict[str, Record]) -> str:
    spikes, peaks = (
        [v[key] for v in seeds.values() if v[key] is not None] for key in ("spikes_per_1000", "grad_norm_peak")
    )
    lost = sum(v["nonfinite_step"] is not None for v in seeds.values())
    shown = [f"{statistics.fmean(spikes):.1f}" if spikes else "-", f"{max(peaks):.0f}" if peaks else "-", f"{lost}"]
    return " | ".join([*shown, _spread([v["loss"] for v in seeds.values()])])


def _search(found: dict[str, Record]) -> list[str]:
    lines = [
        "## The search",
        "",
        "Validation loss after 500 updates (seed 100) by rate / share; the lowest was chosen, on one seed, so that",
        f"pairs also differ in their rates. At the edge of what was tried: {_edges(found)}.",
        "",
    ]
    lines += ["| model | trials | CONFIG of the final run |", "|---|---|---|"]
    for model, record in found.items():
        best = min((trial["loss"] for trial in record["trials"] if trial["loss"] is not None), default=None)
        trials = ", ".join(_trial(trial, best) for trial in record["trials"])
        lines.append(f"| {model} | {trials} | `{record['final']['argument']}` |")
    return lines


def _edges(found: dict[str, Record]) -> str:
    """The models whose best rate, or share at that rate, is the highest or the lowest that was tried."""
    names = []
    for model, record in found.items():
        trials = [trial for trial in record["trials"] if trial["loss"] is not None]
        if not trials:
            continue
        best = min(trials, key=lambda trial: trial["loss"])
        shares = {trial["share"] for trial in trials if trial["lr"] == best["lr"]}
        rates = {trial["lr"] for trial in trials}
        if best["lr"] in (min(rates), max(rates)) or (len(shares) > 1 and best["share"] in (min(shares), max(shares))):
            names.append(model)
    return ", ".join(names) or "none"


def _trial(trial: Record, best: float | None) -> str:
    loss = "not finite" if trial["loss"] is None else f"{trial['loss']:.3f}"
    shown = f"{trial['lr']:g} / {trial['share']:g}: {loss}"
    return f"**{shown}**" if best is not None and trial["loss"] == best else shown


def _verdict(mean: float, half: float, sign: int = 1) -> str:
    """Whether a difference has the sign that was claimed."""
    if abs(mean) <= half:
        return "**Not decided**"
    return "**Holds**" if mean * sign > 0 else "**Does not hold**"


def _spread(values: Sequence[float | None]) -> str:
    """Mean ± standard deviation of the values that are finite; how many, if not all are."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return "not finite"
    spread = f" ± {statistics.stdev(finite):.3f}" if len(finite) > 1 else ""
    share = f" of {len(finite)} seeds" if len(finite) < len(values) else ""
    return f"{statistics.fmean(finite):.3f}{spread}{share}"


def _signed(mean: float, half: float) -> str:
    return f"{mean:+.3f} ± {half:.3f}" if math.isfinite(mean) else "(not finite in a seed)"


def draw(records: Sequence[Record]) -> None:
    """The figure: loss over updates in training and validation, and by position at the end."""
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figures.language_losses({r["model"]: r["final"] for r in records}, mru_study.TRAINING["window"], FIGURE)
