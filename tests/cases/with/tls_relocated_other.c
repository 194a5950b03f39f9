int in_other = 40;
