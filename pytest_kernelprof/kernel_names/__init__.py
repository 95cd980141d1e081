"""What people call a kernel: short names made of full ones. Pure text, below all other rooms."""
