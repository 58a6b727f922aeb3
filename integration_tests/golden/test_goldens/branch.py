def branch(a0, a1):
    try:
        out = graph_N(a0, a1)
    except Exception as error:
        raise graph_raised(error)
    t0 = out[0]
    t1 = a1
    t2 = out[1]
    del out
    c1 = not t0
    return tail_call(resume_branch_N, t1, t2) if c1 else tail_call(resume_branch_N, t1, t2)
