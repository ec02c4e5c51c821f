// A virtual machine that makes threads, compiles, collects, catches overflows and null pointers by signals, and
// allocates outside its heap.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

final class Threads {
    static int depth(int from) {
        return depth(from + 1) + 1;
    }

    static long work(int number) {
        CRC32 sum = new CRC32();
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < 2000; i++) {
            byte[] bytes = new byte[100 + i % 700];
            bytes[i % 100] = (byte) (i * number);
            kept.add(bytes);
            sum.update(bytes);
            if (kept.size() > 500) kept.remove(i % 500);
        }
        ByteBuffer outside = ByteBuffer.allocateDirect(100_000);
        for (int i = 0; i < 25_000; i++) outside.putInt(i * number);
        outside.flip();
        Deflater deflater = new Deflater();
        deflater.setInput(outside);
        deflater.finish();
        byte[] packed = new byte[200_000];
        int size = deflater.deflate(packed);
        deflater.end();
        sum.update(packed, 0, size);
        return sum.getValue();
    }

    public static void main(String[] arguments) throws Exception {
        System.in.read();
        long[] sums = new long[16];
        Thread[] threads = new Thread[sums.length];
        for (int i = 0; i < threads.length; i++) {
            int mine = i;
            threads[i] = new Thread(() -> sums[mine] = work(mine));
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println("sums " + java.util.Arrays.toString(sums));
        try {
            depth(0);
        } catch (StackOverflowError error) {
            System.out.println("an overflow was caught");
        }
        try {
            Object nothing = arguments.length > 100 ? arguments : null;
            nothing.hashCode();
        } catch (NullPointerException error) {
            System.out.println("a null pointer was caught");
        }
        System.gc();
        System.out.println(IntStream.range(0, 1_000_000).parallel().mapToLong(i -> i % 7).sum());
        Process process = new ProcessBuilder("echo", "a child").redirectErrorStream(true).start();
        System.out.print(new String(process.getInputStream().readAllBytes()));
        System.exit(23 + process.waitFor());
    }
}
