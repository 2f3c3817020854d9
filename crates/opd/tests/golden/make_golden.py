"""Computes the golden values that the Rust code is tested against.

Independent of the Rust code: every formula is written here from the paper, in numpy with float64, and every
gradient by complex-step differentiation of the loss (no analytic gradient appears in this file).

    python3 make_golden.py        # needs numpy; rewrites the *.json beside this file
"""

import json
import math
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
RNG = np.random.default_rng(20260927)


def f32(values):
    """Values that survive a round trip through 32-bit floats, as the engines return them."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def logits(vocabulary, spread=3.0):
    return f32(RNG.normal(0.0, spread, vocabulary))


def log_softmax(z, tau=1.0):
    z = z / tau
    top = np.max(z.real)
    return z - top - np.log(np.sum(np.exp(z - top)))


def complex_step(loss, z):
    """d loss / d z by the complex step: exact to rounding, and needs nothing but the loss itself."""
    gradient = []
    for v in range(len(z)):
        moved = z.astype(np.complex128)
        moved[v] += 1e-30j
        gradient.append(loss(moved).imag / 1e-30)
    return gradient


def write(name, document):
    text = json.dumps(document, indent=1, default=lambda value: value.tolist() if hasattr(value, "tolist") else float(value))
    (HERE / f"{name}.json").write_text(text + "\n")


# ---------------------------------------------------------------------------------------------- token facts


def random_turn(tokens, vocabulary=9):
    """A scored turn: both models' logits, and the facts an engine would report about them."""
    rows = []
    for position in range(tokens):
        student = logits(vocabulary)
        teacher = student + RNG.normal(0.0, 2.0, vocabulary) if RNG.random() < 0.7 else student.copy()
        teacher = f32(teacher)
        log_s, log_t = log_softmax(student), log_softmax(teacher)
        token = int(RNG.choice(vocabulary, p=np.exp(log_s) / np.exp(log_s).sum()))
        v_s, v_t = int(np.argmax(log_s)), int(np.argmax(log_t))
        special = position == tokens - 1 or RNG.random() < 0.1
        rows.append(
            {
                "id": token,
                "content": not special,
                "special": bool(special),
                "student_logprob": f32(log_s[token]),
                "teacher_logprob": f32(log_t[token]),
                "top": {
                    "student_top": v_s,
                    "teacher_top": v_t,
                    "student_at_student": f32(log_s[v_s]),
                    "student_at_teacher": f32(log_s[v_t]),
                    "teacher_at_teacher": f32(log_t[v_t]),
                    "teacher_at_student": f32(log_t[v_s]),
                },
                "kl": f32(np.sum(np.exp(log_s) * (log_s - log_t))),
            }
        )
    return rows


def content(turn):
    return [token for token in turn if token["content"]]


# ---------------------------------------------------------------------------------------------------- locate


def support(top):
    if top["student_top"] == top["teacher_top"]:
        return 1.0
    return min(1.0, math.exp(top["student_at_teacher"]) / math.exp(top["student_at_student"]))


def adaptive_clock(batches, eta, k_max, eps=1e-6, low=0.5, high=1.5):
    """Algorithm 1, lines 1 to 9, over a list of per-batch competences (an empty list: no valid episode)."""
    depth, clock, entry = 1, 0.0, None
    trace = []
    for competences in batches:
        used = depth
        level = float(np.median(competences)) if competences else None
        v = None
        if depth < k_max:
            if level is None:
                v = 1.0
            else:
                if entry is None:
                    entry = 1.0 - level
                v = float(np.clip((entry + eps) / (1.0 - level + eps), low, high))
            clock += v
            if clock >= eta:
                clock -= eta
                depth += 1
                entry = None
        trace.append({"depth": used, "competence": level, "pace": v, "next_depth": depth, "elapsed": clock})
    return trace


def make_locate():
    turns = []
    for tokens in (3, 7, 12, 20):
        turn = random_turn(tokens)
        inside = content(turn)
        turns.append(
            {
                "tokens": turn,
                "supports": [support(token["top"]) for token in inside],
                "competence": np.mean([support(token["top"]) for token in inside]),
                "divergence": np.mean([token["kl"] for token in inside]),
                "sampled_divergence": np.mean([token["student_logprob"] - token["teacher_logprob"] for token in inside]),
                "disagreement": np.mean([token["student_logprob"] - token["teacher_logprob"] for token in turn]),
            }
        )
    clocks = []
    for eta, k_max, length, trend in ((5, 30, 120, 0.004), (5, 15, 60, -0.003), (2, 6, 40, 0.01), (2, 1, 5, 0.0), (3, 4, 50, 0.0)):
        batches = []
        for n in range(length):
            count = int(RNG.integers(0, 6))
            level = 0.4 + trend * n
            batches.append([float(x) for x in np.clip(RNG.normal(level, 0.15, count), 0.0, 1.0)])
        clocks.append({"eta": eta, "k_max": k_max, "batches": batches, "trace": adaptive_clock(batches, eta, k_max)})
    # The case of a student that already agrees everywhere: both gaps are zero and eps decides.
    agreed = [[1.0, 1.0]] * 12
    clocks.append({"eta": 5, "k_max": 30, "batches": agreed, "trace": adaptive_clock(agreed, 5, 30)})
    medians = [{"values": v, "median": float(np.median(v))} for v in ([0.3], [0.9, 0.1], [0.2, 0.9, 0.4], [0.1, 0.2, 0.8, 0.4])]
    unit = [{"n": n, "horizon": 1 + (n - 1) // 5} for n in (1, 4, 5, 6, 10, 11, 146, 150)]
    write("locate", {"turns": turns, "clocks": clocks, "medians": medians, "unit_pace": unit})


# ------------------------------------------------------------------------------------------------- schedules


def make_schedules():
    # The vectors stated in the baselines' own descriptions, then a sweep.
    f2b = [(5, 1, 1, 30), (5, 4, 1, 30), (5, 5, 2, 30), (5, 9, 2, 30), (5, 10, 3, 30), (5, 70, 15, 15), (5, 144, 29, 30), (5, 145, 30, 30), (6, 174, 30, 30), (4, 56, 15, 15)]
    forward = [{"eta": e, "n": n, "max_turns": t, "horizon": k} for e, n, k, t in f2b]
    forward += [{"eta": e, "n": n, "max_turns": 30, "horizon": min(1 + math.floor(n / e), 30)} for e in (2, 3, 7) for n in (1, 2, 6, 7, 59, 203, 1000)]
    b2f = [(8, 5, 1, 7, 30), (8, 5, 5, 6, 30), (8, 5, 34, 1, 30), (8, 5, 35, 0, 30), (8, 5, 200, 0, 30)]
    backward = [{"length": length, "eta": e, "n": n, "max_turns": t, "prefix": c} for length, e, n, c, t in b2f]
    for length in (0, 1, 2, 29, 30, 31, 75):
        for n in (1, 5, 40, 400):
            prefix = min(max(0, (length - 1) - n // 5), 30 - 1)
            backward.append({"length": length, "eta": 5, "n": n, "max_turns": 30, "prefix": prefix})
    guided = []
    for n in (1, 50, 100, 150, 175, 199, 200, 201, 250):
        span = max(1, int(0.8 * 250))
        share = (1.0 + math.cos(math.pi * min(n / span, 1.0))) / 2.0
        guided.append({"n": n, "share": share})
    stated = [{"n": n, "share": s} for n, s in ((1, 0.99994), (50, 0.85355), (100, 0.5), (150, 0.14645), (175, 0.03806), (200, 0.0))]
    write("schedules", {"forward": forward, "backward": backward, "guided": guided, "guided_stated": stated})


# -------------------------------------------------------------------------------------------------- validate


def make_validate():
    tempered = []
    for tau in (1.0, 0.7, 2.5):
        z = logits(11)
        token = int(RNG.integers(0, 11))
        tempered.append({"logits": z, "token": token, "tau": tau, "log_probability": log_softmax(z, tau)[token]})
    pairs = []
    for base_turns, guided_turns in ((3, 3), (1, 3), (2, 2), (3, 1)):
        first = [random_turn(int(RNG.integers(3, 8))) for _ in range(base_turns)]
        second = [random_turn(int(RNG.integers(3, 8))) for _ in range(guided_turns)]
        # Both ways round, so that the gate opens for one of them.
        pairs += [compare(first, second), compare(second, first)]
    write("validate", {"tempered": tempered, "pairs": pairs})


def compare(base, guided):
    """Both continuations' values, the gain and the gate."""

    def likelihood(turns):
        return float(np.mean([token["teacher_logprob"] for turn in turns for token in content(turn)]))

    def ratio(turns):
        return float(np.mean([token["teacher_logprob"] > token["student_logprob"] for turn in turns for token in turn]))

    gain = likelihood(guided) - likelihood(base)
    return {
        "base": base,
        "guided": guided,
        "base_likelihood": likelihood(base),
        "guided_likelihood": likelihood(guided),
        "gain": gain,
        "accepted": gain > 0,
        "base_ratio": ratio(base),
        "guided_ratio": ratio(guided),
    }


# ---------------------------------------------------------------------------------------------------- refine


def focus(turn, beta, cap, eps=1e-6):
    raw, scores = {}, {}
    for i, token in enumerate(turn):
        if not token["content"]:
            continue
        top = token["top"]
        g_s = max(0.0, top["student_at_student"] - top["student_at_teacher"])
        rho = 1.0 / (1.0 + math.exp(-(top["teacher_at_teacher"] - top["teacher_at_student"])))
        scores[i] = g_s * rho
        raw[i] = min(cap, 1.0 + beta * scores[i])
    scale = np.mean(list(raw.values())) + eps
    weights = [raw[i] / scale if i in raw else 1.0 for i in range(len(turn))]
    targets = [i for i in raw if turn[i]["top"]["student_top"] != turn[i]["top"]["teacher_top"]]
    return weights, list(scores.values()), float(sum(weights[i] for i in targets)), len(targets)


def forward_kl(target, z):
    q = log_softmax(target)
    return np.sum(np.exp(q) * (q - log_softmax(z)))


def make_refine():
    turns = []
    for tokens, beta, cap in ((5, 1.0, 5.0), (12, 1.0, 5.0), (12, 3.0, 2.0), (20, 0.0, 5.0), (25, 1.0, 1.5)):
        turn = random_turn(tokens)
        weights, scores, mass, targets = focus(turn, beta, cap)
        turns.append({"tokens": turn, "beta": beta, "cap": cap, "weights": weights, "scores": scores, "target_mass": mass, "target_tokens": targets})
    target = [logits(8) for _ in range(4)]
    learner = [logits(8) for _ in range(4)]
    value = float(np.mean([forward_kl(q, p).real for q, p in zip(target, learner)]))
    gradients = [[g / 4 for g in complex_step(lambda z, q=q: forward_kl(q, z), p)] for q, p in zip(target, learner)]
    write("refine", {"focus": turns, "internalize": {"target": target, "learner": learner, "value": value, "gradients": gradients}})


# ------------------------------------------------------------------------------------------------- objective


def reverse_kl(z, teacher):
    s, t = log_softmax(z), log_softmax(teacher)
    return np.sum(np.exp(s) * (s - t))


def top_of(teacher, k):
    t = log_softmax(teacher)
    order = sorted(range(len(t)), key=lambda v: -t[v])[:k]
    return [{"token": v, "logprob": float(np.float32(t[v]))} for v in order]


def bucketed(z, top):
    """Student and listed distribution over the listed tokens and one bucket for the rest."""
    p = np.exp(log_softmax(z))
    listed = [entry["token"] for entry in top]
    rest = [v for v in range(len(z)) if v not in listed]
    q = [math.exp(entry["logprob"]) for entry in top]
    p = [p[v] for v in listed] + ([sum(p[v] for v in rest)] if rest else [])
    q = q + ([max(1.0 - sum(q), 1e-9)] if rest else [])
    return p, q


def reverse_topk(z, top):
    p, q = bucketed(z, top)
    return sum(a * (np.log(a) - math.log(b)) for a, b in zip(p, q))


def forward_topk(z, top):
    p, q = bucketed(z, top)
    return sum(b * (math.log(b) - np.log(a)) for a, b in zip(p, q))


def policy_gradient(z, token, log_t, log_mu, kl_coef=1.0, clip=0.2, dual=3.0):
    advantage = kl_coef * (log_t - log_mu)
    difference = log_softmax(z)[token] - log_mu
    if difference.real > 20 or difference.real < -20:
        difference = complex(np.clip(difference.real, -20, 20))
    rho = np.exp(difference)
    bounded = rho if 1 - clip <= rho.real <= 1 + clip else complex(np.clip(rho.real, 1 - clip, 1 + clip))
    first, second = -advantage * rho, -advantage * bounded
    larger = first if first.real >= second.real else second
    if advantage < 0 and larger.real > -dual * advantage:
        return complex(-dual * advantage)
    return larger


def make_objective():
    cases = []
    for vocabulary, k in ((5, 2), (8, 3), (12, 12), (16, 1)):
        student, teacher = logits(vocabulary), logits(vocabulary)
        token = int(RNG.integers(0, vocabulary))
        top = top_of(teacher, k)
        s, t = student, teacher
        cases.append(
            {
                "student": s,
                "teacher": t,
                "token": token,
                "top": top,
                "rkl_full": {"value": reverse_kl(s, t).real, "gradient": complex_step(lambda z: reverse_kl(z, t), s)},
                "rkl_topk": {"value": reverse_topk(s, top).real, "gradient": complex_step(lambda z: reverse_topk(z, top), s)},
                "forward_kl": {"value": forward_kl(t, s).real, "gradient": complex_step(lambda z: forward_kl(t, z), s)},
                "forward_kl_topk": {"value": forward_topk(s, top).real, "gradient": complex_step(lambda z: forward_topk(z, top), s)},
                "nll": {"value": -log_softmax(s)[token].real, "gradient": complex_step(lambda z: -log_softmax(z)[token], s)},
            }
        )
    policy = []
    student = logits(6)
    for token in range(3):
        current = log_softmax(student)[token]
        for log_ratio in (0.0, 0.1, -0.1, 0.5, -0.5, 1.5, -2.0, 25.0):
            for gap in (1.3, -1.3):
                mu = float(np.float32(current - log_ratio))
                if mu > 0.0:
                    continue
                log_t = float(np.float32(mu + gap))
                if log_t > 0.0:
                    continue
                call = lambda z, token=token, log_t=log_t, mu=mu: policy_gradient(z, token, log_t, mu)
                policy.append({"student": student, "token": token, "teacher_logprob": log_t, "rollout_logprob": mu, "value": complex(call(student.astype(np.complex128))).real, "gradient": complex_step(call, student)})
    batch = make_batch()
    write("objective", {"cases": cases, "policy_gradient": policy, "batch": batch})


def make_batch():
    """A whole train batch: three trajectories, weighted rows, two gi rows."""
    rows, focus_sum, weight_sum, gi_sum = [], 0.0, 0.0, 0.0
    for batch, episode, turn, kind in ((1, 0, 0, "opd"), (1, 0, 1, "opd"), (1, 0, 1, "gi"), (1, 3, 0, "opd"), (2, 0, 2, "gi"), (2, 0, 4, "bridge")):
        length = int(RNG.integers(2, 6))
        losses = RNG.normal(1.0, 0.5, length)
        weights = np.ones(length) if kind == "gi" else f32(RNG.uniform(0.5, 2.0, length))
        rows.append({"batch": batch, "episode": episode, "turn": turn, "kind": kind, "weights": weights, "losses": losses})
        if kind == "gi":
            gi_sum += float(np.mean(losses))
        else:
            focus_sum += float(np.sum(weights * losses))
            weight_sum += float(np.sum(weights))
    lambda_gi, eps = 0.5, 1e-6
    trajectories = len({(row["batch"], row["episode"]) for row in rows})
    value = focus_sum / (weight_sum + eps) + lambda_gi * gi_sum / trajectories
    plain = [row for row in rows if row["kind"] != "gi"]
    row_mean = float(np.mean([np.sum(r["weights"] * r["losses"]) / (np.sum(r["weights"]) + eps) for r in plain])) + lambda_gi * gi_sum / trajectories
    return {"rows": rows, "lambda_gi": lambda_gi, "trajectories": trajectories, "value": value, "row_mean_value": row_mean}


# ----------------------------------------------------------------------------------------------------- stats


def make_stats():
    samples = [f32(RNG.normal(40.0, 3.0, 5)) for _ in range(3)]
    summaries = [{"values": v, "mean": np.mean(v), "std": np.std(v, ddof=1)} for v in samples]
    curve = [None if RNG.random() < 0.2 else float(f32(RNG.normal())) for _ in range(25)]
    smooth = []
    for i, value in enumerate(curve):
        near = [x for x in curve[max(0, i - 3) : i + 4] if x is not None]
        smooth.append(None if value is None else float(np.mean(near)))
    x = [float(v) for v in RNG.integers(0, 6, 20)]
    y = [float(v) + 0.5 * a for v, a in zip(RNG.integers(0, 6, 20), x)]

    def ranks(values):
        return np.array([np.sum(np.array(values) < v) + (np.sum(np.array(values) == v) + 1) / 2 for v in values])

    correlation = float(np.corrcoef(ranks(x), ranks(y))[0, 1])
    episodes = []
    for _ in range(12):
        reward = float(RNG.choice([0.0, 0.25, 0.5, 2 / 3, 1.0]))
        episodes.append({"success": bool(RNG.random() < 0.4), "reward": reward, "points": float(RNG.integers(-100, 101)), "turns": int(RNG.integers(1, 30))})
    metrics = {
        "alfworld_sr": 100 * np.mean([e["success"] for e in episodes]),
        "webshop_score": 100 * np.mean([e["reward"] for e in episodes]),
        "webshop_sr": 100 * np.mean([e["reward"] == 1 for e in episodes]),
        "scienceworld_score": np.mean([max(e["points"], 0) for e in episodes]),
        "scienceworld_sr": 100 * np.mean([e["success"] for e in episodes]),
        "rounds": np.mean([e["turns"] if e["success"] else 30 for e in episodes]),
    }
    write("stats", {"summaries": summaries, "curve": curve, "smooth": smooth, "window": 7, "x": x, "y": y, "rank_correlation": correlation, "episodes": episodes, "metrics": metrics})


if __name__ == "__main__":
    make_locate()
    make_schedules()
    make_validate()
    make_refine()
    make_objective()
    make_stats()
