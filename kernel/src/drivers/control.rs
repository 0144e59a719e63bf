//! Control lines from the host: signals, end of input, output windows.
