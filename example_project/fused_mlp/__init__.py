"""A whole MLP in one kernel launch: kernels, dispatch, modules."""
