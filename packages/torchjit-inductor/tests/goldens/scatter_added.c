/* host program
# g: 0 kernels, 1 aten calls
def call(x_1, i_1, s_1):
    grad = is_grad()
    no_grad(False)
    try:
        scatter_add = aten_scatter_add(x_1, 0, i_1, s_1)  # scatter_add
        return [scatter_add]
    finally:
        no_grad(grad)
*/
