import java.util.ArrayList;
import java.util.List;

/** 300 MiB of arrays, which are dropped. A little goes on being allocated. */
public class Live {
	public static void main(String[] arguments) throws InterruptedException {
		List<byte[]> live = new ArrayList<>();
		for (int number = 0; number < 300_000; number++)
			live.add(new byte[1000]);
		live = null;
		byte[][] some = new byte[100][];
		System.out.println("freed");
		for (int turn = 0; turn < 100; turn++) {
			some[turn] = new byte[10_000];
			Thread.sleep(100);
		}
	}
}
