from fxgrad.kernels import vector as v
def pow(x,y): return x
