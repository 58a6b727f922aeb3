


def forward(self, l_x_):
    mul = l_x_ * 2.5;  l_x_ = None
    relu = torch.relu(mul);  mul = None
    add = relu + 1;  relu = None
    return (add,)
