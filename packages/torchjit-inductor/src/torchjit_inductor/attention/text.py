"""The texts of the kernels of attention with the user's functions of scores in them: the forward, and the two of the backward."""

from __future__ import annotations

from torchjit_inductor.attention.writer import ADDITIONS, GRADIENTS, INDENT, AttentionProblem, KernelText, Tiles, Writer

__all__ = ["forward_lines", "forward_text", "keys_text", "queries_text"]


def forward_text(p: AttentionProblem, tiles: Tiles, *, portable: bool = False) -> KernelText:
    """Result, logarithm of the sum and maximum of each row."""
    w = Writer(p, tiles, by_key=False, portable=portable)
    lines = [
        *forward_lines(w, "result"),
        "sums = tl.where(sums == 0.0, 1.0, sums)",
        w.store("result", "acc / sums[:, None]", "w", p.width),
        w.store_row("total", "most + tl.log2(sums)"),
        w.store_row("largest", "most"),
    ]
    return w.finished("attention", lines, ("result", "total", "largest"))


def forward_lines(w: Writer, *results: str) -> list[str]:
    """What computes the sum (`acc`) of values times weights, relative to the maximum (`most`), and the sum of the weights (`sums`)."""
    p, tiles = w.p, w.tiles
    lines = [
        *w.program(p.sizes[1]),
        *w.bases("query", "key", "value", *results),
        f"q = {w.rows('query', 'd', p.depth)}",
    ]
    body = [
        f"k = {w.turned('key', 'd', p.depth)}",
        *w.scores("q", "k"),
        "above = tl.maximum(most, tl.max(scores, 1))",
        'base = tl.where(above == float("-inf"), 0.0, above)',
        "weights = tl.exp2(scores - base[:, None])",
        "shrunk = tl.exp2(most - base)",
        "sums = sums * shrunk + tl.sum(weights, 1)",
        "acc = acc * shrunk[:, None]",
        f"v = {w.columns('value', 'w', p.width)}",
        f"acc = {w.dot(w.narrow('weights'), 'v', 'acc')}",
        "most = above",
    ]
    loops = w.loops(body)
    return [
        *lines,
        *w.emitter.head,
        f'most = tl.full([{tiles.rows}], float("-inf"), tl.float32)',
        f"sums = tl.zeros([{tiles.rows}], tl.float32)",
        f"acc = tl.zeros([{tiles.rows}, {w.padded(p.width)}], tl.float32)",
        *loops,
    ]


def queries_text(p: AttentionProblem, tiles: Tiles, *, portable: bool = False) -> KernelText:
    """The gradient of the queries."""
    w = Writer(p, tiles, by_key=False, portable=portable)
    lines = [
        *w.program(p.sizes[1]),
        *w.bases("query", "key", "value", "gradient", "of_query"),
        f"q = {w.rows('query', 'd', p.depth)}",
        f"g = {w.rows('gradient', 'w', p.width)}",
        *w.row_facts("[:, None]", "rows", w.row_masked, p.sizes[2]),
    ]
    body = [
        f"k = {w.turned('key', 'd', p.depth)}",
        *w.scores("q", "k"),
        "weights = tl.exp2(scores - total_of_row)",
        f"v = {w.turned('value', 'w', p.width)}",
        f"change = weights * ({w.dot('g', 'v')} - shift_of_row)",
        GRADIENTS,
        f"acc = {w.dot(w.narrow('change'), 'tl.trans(k)', 'acc')}",
    ]
    loops = w.loops(body)
    lines += [
        *w.emitter.head,
        f"acc = tl.zeros([{tiles.rows}, {w.padded(p.depth)}], tl.float32)",
        *loops,
        w.store("of_query", f"acc * {p.scale!r}", "d", p.depth),
    ]
    return w.finished("attention_of_queries", lines, ("total", "gradient", "shift", "of_query"))


def keys_text(p: AttentionProblem, tiles: Tiles, *, portable: bool = False) -> KernelText:
    """The gradients of keys and values: scores are turned, so that a program holds keys."""
    w = Writer(p, tiles, by_key=True, portable=portable)
    groups = p.sizes[1] // p.key_heads
    lines = [
        *w.program(p.key_heads, "key_head"),
        *w.bases("key", "value", "of_key", "of_value", head="key_head"),
        f"k = {w.rows('key', 'd', p.depth)}",
        f"v = {w.rows('value', 'w', p.width)}",
        f"of_k = tl.zeros([{tiles.rows}, {w.padded(p.depth)}], tl.float32)",
        f"of_v = tl.zeros([{tiles.rows}, {w.padded(p.width)}], tl.float32)",
    ]
    body = [
        f"q = {w.turned('query_of_head', 'd', p.depth)}",
        *w.row_facts("[None, :]", "columns", w.column_masked, p.sizes[2]),
        *w.scores("k", "q"),
        "weights = tl.exp2(scores - total_of_row)",
        f"g = {w.columns('gradient_of_head', 'w', p.width)}",
        f"of_v = {w.dot(w.narrow('weights'), 'g', 'of_v')}",
        f"change = weights * ({w.dot('v', 'tl.trans(g)')} - shift_of_row)",
        ADDITIONS,
        GRADIENTS,
        f"of_k = {w.dot(w.narrow('change'), 'tl.trans(q)', 'of_k')}",
    ]
    loops = w.loops(body)
    inside = [*w.bases("query", "gradient", suffix="_of_head"), *w.emitter.head, *loops]
    if groups == 1:
        lines += ["x1 = key_head", *inside]
    else:
        inside = [f"x1 = key_head * {groups} + member", *inside]
        lines += [f"for member in range(0, {groups}):", *(INDENT + line for line in inside)]
    lines += [
        w.store("of_key", f"of_k * {p.scale!r}", "d", p.depth),
        w.store("of_value", "of_v", "w", p.width),
    ]
    others = [f"of_outside{n}" for n in dict.fromkeys(a.tensor for a in p.formulas.additions)]
    return w.finished("attention_of_keys", lines, ("total", "gradient", "shift", "of_key", "of_value", *others))
