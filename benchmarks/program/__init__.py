"""The program itself: how long it takes, how much memory it needs, how its code is built."""
