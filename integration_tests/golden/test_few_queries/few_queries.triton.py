@triton.jit
def attention_of_parts(query, key, value, in0, acc_of_parts, sums_of_parts, most_of_parts):
    pid = tl.program_id(0)
    part = pid % 16
    pid = pid // 16
    row_start = (0 - pid % 1) * 16
    x1 = pid // 1 % 2
    x0 = pid // 2
    rows = row_start + tl.arange(0, 16)
    x2 = rows[:, None]
    d = tl.arange(0, 128)
    w = tl.arange(0, 128)
    y_mask = x2 < 3
    query = query + (x0.to(tl.int64) * 432 + (x1).to(tl.int64) * 72)
    key = key + (x0.to(tl.int64) * 294912 + (x1).to(tl.int64) * 147456)
    value = value + (x0.to(tl.int64) * 294912 + (x1).to(tl.int64) * 147456)
    q = tl.load(query + (rows[:, None] * 144 + d[None, :]), (rows[:, None] < 3) & (d[None, :] < 72), other=0.0)
    most = tl.full([16], float("-inf"), tl.float32)
    sums = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, 128], tl.float32)
    count = 32
    for turn in range(count * part // 16, count * (part + 1) // 16):
        columns = turn * 64 + tl.arange(0, 64)
        x3 = columns[None, :]
        k = tl.load(key + (columns[None, :] * 72 + d[:, None]), (d[:, None] < 72), other=0.0)
        products = tl.dot(q, k) * 0.3
        v0 = tl.load(in0 + (x0*6144 + x2*2048 + x3), y_mask, other=0, eviction_policy="evict_last").to(tl.float32)
        v1 = products + v0
        scores = v1 * 1.4426950408889634
        above = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(above == float("-inf"), 0.0, above)
        weights = tl.exp2(scores - base[:, None])
        shrunk = tl.exp2(most - base)
        sums = sums * shrunk + tl.sum(weights, 1)
        acc = acc * shrunk[:, None]
        v = tl.load(value + (columns[:, None] * 72 + w[None, :]), (w[None, :] < 72), other=0.0)
        acc = tl.dot(weights.to(tl.bfloat16), v, acc)
        most = above
    row_of_part = part.to(tl.int64) * 12 + (x0 * 2 + x1).to(tl.int64) * 3 + rows
    tl.store(acc_of_parts + (row_of_part[:, None] * 72 + w[None, :]), acc, (rows < 3)[:, None] & (w[None, :] < 72))
    tl.store(sums_of_parts + row_of_part, sums, rows < 3)
    tl.store(most_of_parts + row_of_part, most, rows < 3)
