//! STREAM: the kernels copy, scale, add and triad over three arrays.

use super::windows::{Sample, Work, lowest_hundredth};
use crate::clock::{monotonic_ns, ratio};
use std::hint::black_box;
use std::time::Duration;

/// Number of elements in an array of 8 MiB.
const NUMBERS: usize = 1 << 20;
const SCALAR: f64 = 3.0;
const KERNELS: [&str; 4] = ["copy", "scale", "add", "triad"];
/// Bytes that each kernel reads and writes in a pass, as STREAM counts them.
const BYTES: [u64; 4] = [16 << 20, 16 << 20, 24 << 20, 24 << 20];

/// The three arrays of STREAM, of 8 MiB each, on which its kernels work.
pub(super) struct Stream {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Stream {
    /// Allocates the arrays and fills them with their initial values.
    pub(super) fn new() -> Self {
        Self {
            a: vec![1.0; NUMBERS],
            b: vec![2.0; NUMBERS],
            c: vec![0.0; NUMBERS],
        }
    }

    /// Runs the kernel with index `kernel`. Returns its time in nanoseconds, at least 1.
    fn kernel(&mut self, kernel: usize) -> u64 {
        let Self { a, b, c } = self;
        let begin = monotonic_ns();
        match kernel {
            0 => c.copy_from_slice(a),
            1 => b.iter_mut().zip(&*c).for_each(|(b, c)| *b = SCALAR * c),
            2 => {
                let sums = c.iter_mut().zip(&*a).zip(&*b);
                sums.for_each(|((c, a), b)| *c = a + b);
            }
            _ => {
                let sums = a.iter_mut().zip(&*b).zip(&*c);
                // The values of STREAM grow without limit. Here they stay finite in a run of any
                // length.
                sums.for_each(|((a, b), c)| *a = (b + SCALAR * c).min(1e9));
            }
        }
        black_box((&a[0], &b[0], &c[0]));
        (monotonic_ns() - begin).max(1)
    }
}

impl Work for Stream {
    fn measure(&mut self, window: Duration) -> Vec<Sample> {
        let mut taken_ns = [0; 4];
        let mut passes = 0;
        let mut bandwidths = Vec::new();
        let begin = monotonic_ns();
        loop {
            let mut pass_ns = 0;
            for (kernel, taken) in taken_ns.iter_mut().enumerate() {
                let ns = self.kernel(kernel);
                *taken += ns;
                pass_ns += ns;
            }
            passes += 1;
            bandwidths.push(per_second(BYTES.iter().sum(), pass_ns));
            if u128::from(monotonic_ns() - begin) >= window.as_nanos() {
                break;
            }
        }
        let kernels = KERNELS.iter().zip(BYTES).zip(taken_ns);
        let mut samples: Vec<Sample> = kernels
            .map(|((kernel, bytes), ns)| Sample {
                name: "stream",
                value: per_second(bytes * passes, ns),
                unit: "B/s",
                kernel: Some(kernel),
            })
            .collect();
        samples.push(Sample {
            name: "stream_low",
            value: lowest_hundredth(&mut bandwidths),
            unit: "B/s",
            kernel: None,
        });
        samples
    }
}

fn per_second(bytes: u64, ns: u64) -> f64 {
    ratio(bytes, ns) * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_compute_what_stream_computes() {
        let mut stream = Stream::new();
        for kernel in 0..4 {
            assert!(stream.kernel(kernel) > 0);
        }
        // The kernels in order: c = a; b = 3c; c = a + b; a = b + 3c.
        assert_eq!((stream.b[7], stream.c[7], stream.a[7]), (3.0, 4.0, 15.0));
        let last = NUMBERS - 1;
        assert_eq!((stream.c[last], stream.a[last]), (4.0, 15.0));
    }
}
