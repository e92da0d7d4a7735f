"""What tests share: the testbed, waiting, and short ways to say what a pod is."""
