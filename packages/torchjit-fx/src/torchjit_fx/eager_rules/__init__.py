"""What eager does otherwise than torch's fake tensors say, as one frozen rule per operator.

`table.py` has a row for each ATen operator, `functions.py` for each function that a program calls, `rule.py` the fields of both. A few
mechanisms apply the fields, one module each; `application.py` has them in order. A new oddity of an operator is a row there; what no row can say is
a new field.
"""
