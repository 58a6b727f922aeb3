@triton.jit
def attention(query, key, value, counts0, indices0, counts1, indices1, in0, result, total, largest):
    pid = tl.program_id(0)
    row_start = (2 - pid % 3) * 16
    x1 = pid // 3 % 2
    x0 = pid // 6
    rows = row_start + tl.arange(0, 16)
    x2 = rows[:, None]
    d = tl.arange(0, 16)
    w = tl.arange(0, 16)
    query = query + (x0.to(tl.int64) * 1536 + (x1).to(tl.int64) * 768)
    key = key + (x0.to(tl.int64) * 1536 + (x1).to(tl.int64) * 16)
    value = value + (x0.to(tl.int64) * 1536 + (x1).to(tl.int64) * 768)
    result = result + (x0.to(tl.int64) * 1536 + (x1).to(tl.int64) * 768)
    q = tl.load(query + (rows[:, None] * 16 + d[None, :]))
    v3 = tl.load(in0 + (x1))
    v10 = (x2) != 5
    most = tl.full([16], float("-inf"), tl.float32)
    sums = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, 16], tl.float32)
    count = tl.load(counts0 + (row_start // 16 * 1))
    listed = indices0 + (row_start // 16 * 3)
    for turn in range(0, count):
        columns = tl.load(listed + turn * 1) * 16 + tl.arange(0, 16)
        x3 = columns[None, :]
        k = tl.load(key + (columns[None, :] * 32 + d[:, None]))
        products = tl.dot(q, k) * 0.3
        v0 = products * 0.20000000298023224
        v1 = tj.fast_tanh(v0)
        v2 = v1 * 5.0
        v4 = (x2*-1 + x3).to(tl.float32)
        v5 = v3 * v4
        v6 = v2 + v5
        v7 = (x2 - x3*1) < 12
        v8 = (x2) >= (x3)
        v9 = v7 & v8
        v11 = v9 & v10
        scores = v6 * 1.4426950408889634
        allowed = (v11)
        scores = tl.where(allowed, scores, float("-inf"))
        above = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(above == float("-inf"), 0.0, above)
        weights = tl.exp2(scores - base[:, None])
        shrunk = tl.exp2(most - base)
        sums = sums * shrunk + tl.sum(weights, 1)
        acc = acc * shrunk[:, None]
        v = tl.load(value + (columns[:, None] * 16 + w[None, :]))
        acc = tl.dot(weights.to(tl.float16), v, acc)
        most = above
    count = tl.load(counts1 + (row_start // 16 * 1))
    listed = indices1 + (row_start // 16 * 3)
    for turn in range(0, count):
        columns = tl.load(listed + turn * 1) * 16 + tl.arange(0, 16)
        x3 = columns[None, :]
        k = tl.load(key + (columns[None, :] * 32 + d[:, None]))
        products = tl.dot(q, k) * 0.3
        v12 = products * 0.20000000298023224
        v13 = tj.fast_tanh(v12)
        v14 = v13 * 5.0
        v15 = (x2*-1 + x3).to(tl.float32)
        v16 = v3 * v15
        v17 = v14 + v16
        scores = v17 * 1.4426950408889634
        above = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(above == float("-inf"), 0.0, above)
        weights = tl.exp2(scores - base[:, None])
        shrunk = tl.exp2(most - base)
        sums = sums * shrunk + tl.sum(weights, 1)
        acc = acc * shrunk[:, None]
        v = tl.load(value + (columns[:, None] * 16 + w[None, :]))
        acc = tl.dot(weights.to(tl.float16), v, acc)
        most = above
    sums = tl.where(sums == 0.0, 1.0, sums)
    tl.store(result + (rows[:, None] * 16 + w[None, :]), acc / sums[:, None])
    tl.store(total + ((x0 * 2 + x1).to(tl.int64) * 48 + rows), most + tl.log2(sums))
    tl.store(largest + ((x0 * 2 + x1).to(tl.int64) * 48 + rows), most)
