/* host program
# g: 0 kernels, 1 aten calls
def call(x_1, i_1):
    grad = is_grad()
    no_grad(False)
    try:
        gather = aten_gather(x_1, 1, i_1)  # gather
        return [gather]
    finally:
        no_grad(grad)
*/
