"""What is measured. Each module has one function per figure, which takes one sample of each of its cases."""
