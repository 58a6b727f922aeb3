"""For autograd a compiled graph is one node, where eager PyTorch has one for each operator. What makes up for it is here.

* `dependence`, `components`: which results' backwards share operators (the *components*), and what each gradient depends on; found once,
  as traced.
* `nodes`: results that need nodes of autograd of their own, because of where the inputs come from.
* `saved_tensors`: what the node keeps outlasts a backward that some of the components have not been part of.
* `undefined_tangents`: the backward without the terms of results that got no gradient.
* `lazy_backward`: the compiled backwards of one node, each compiled when it is first called.
* `leaf_hooks`: hooks of leaves to which such a backward has no gradient.
* `freed_history`: results whose backward raises, because the graph has freed what is behind them.
* `needs`: what the backward needs of the forward.
"""
