# Some 300 MiB of lists, numbers and texts, which are dropped.
import sys
import time

live = [[str(number) * 4, float(number), {"number": number}] for number in range(700_000)]
live = None
print("freed")
sys.stdout.flush()
time.sleep(10)
