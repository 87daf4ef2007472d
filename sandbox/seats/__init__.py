"""What a person sees of a sandbox and does there: the same for every face that there is to one."""
