// scores^T . rows for a few queries: scores [n, B] and rows [n, F] give [B, F], float32.
//
// Rows are read once, in blocks that stay in the cache: while the products of one block are made, the next one
// is fetched. A panel of the answer, some queries by some columns, stays in registers for all rows of a block.
// The rows are cut into a few stretches, by their number alone, which threads take one after another; their
// sums are added in order. So the answer depends on shapes and numbers, not on how many threads there are.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

#define INLINE __attribute__((always_inline))

namespace {

namespace ffi = xla::ffi;

constexpr int kLanes = 16;              // numbers of a vector
constexpr int64_t kBlock = 32;          // rows in the cache at once
constexpr int64_t kMostStretches = 8;   // of all rows: each has an answer of its own until the end
constexpr int64_t kLeastStretch = 256;  // rows

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

inline INLINE Vector load(const float* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

inline INLINE void store(float* to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }

// Calls function(0), ..., function(n - 1) with constants: a loop over registers must not be one.
template <typename Function, int... I>
inline INLINE void unrolled(Function&& function, std::integer_sequence<int, I...>) {
  (function(std::integral_constant<int, I>{}), ...);
}

template <int n, typename Function>
inline INLINE void unrolled(Function&& function) {
  unrolled(function, std::make_integer_sequence<int, n>{});
}

struct Matrix {
  const float* numbers;
  int64_t width;  // of a row

  const float* row(int64_t number) const { return numbers + number * width; }
  Matrix from(int64_t row, int64_t column) const { return {numbers + row * width + column, width}; }
};

// Adds the products of `count` rows to Q queries by W vectors of columns.
template <int Q, int W>
inline void panel(Matrix scores, Matrix rows, int64_t count, bool fetch, float* out) {
  Vector sums[Q * W] = {};
  for (int64_t r = 0; r < count; ++r) {
    const float* row = rows.row(r);
    const float* score = scores.row(r);
    Vector vectors[W];
    unrolled<W>([&](auto w) INLINE {
      if (fetch) __builtin_prefetch(row + kBlock * rows.width + w * kLanes, 0, 3);
      vectors[w] = load(row + w * kLanes);
    });
    unrolled<Q>([&](auto q) INLINE {
      const Vector factor = score[q] - Vector{};
      unrolled<W>([&](auto w) INLINE { sums[q * W + w] += factor * vectors[w]; });
    });
  }
  unrolled<Q>([&](auto q) INLINE {
    unrolled<W>([&](auto w) INLINE {
      float* sum = out + q * rows.width + w * kLanes;
      store(sum, load(sum) + sums[q * W + w]);
    });
  });
}

// The same for all queries. The first panel fetches the next block (behind the last one, which does no harm).
template <int W>
void panels(Matrix scores, Matrix rows, int64_t count, float* out) {
  int64_t q = 0;
  const auto step = [&](auto most) {
    for (; q + most <= scores.width; q += most)
      panel<most, W>(scores.from(0, q), rows, count, q == 0, out + q * rows.width);
  };
  unrolled<4>([&](auto k) { step(std::integral_constant<int, (8 >> k)>{}); });
}

void combine(Matrix scores, Matrix rows, int64_t count, float* out) {
  const int64_t whole = rows.width / kLanes * kLanes, rest = rows.width - whole;
  std::vector<float> rest_sums(scores.width * kLanes);
  std::fill(out, out + scores.width * rows.width, 0.0f);
  for (int64_t r = 0; r < count; r += kBlock) {
    const int64_t size = std::min(kBlock, count - r);
    const Matrix block = rows.from(r, 0), factors = scores.from(r, 0);
    int64_t f = 0;
    for (; f + 2 * kLanes <= whole; f += 2 * kLanes) panels<2>(factors, block.from(0, f), size, out + f);
    if (f < whole) panels<1>(factors, block.from(0, f), size, out + f);
    if (rest == 0) continue;
    float padded[kBlock * kLanes] = {};
    for (int64_t i = 0; i < size; ++i) std::copy_n(block.row(i) + whole, rest, padded + i * kLanes);
    panels<1>(factors, {padded, kLanes}, size, rest_sums.data());
  }
  for (int64_t q = 0; q < scores.width; ++q) std::copy_n(&rest_sums[q * kLanes], rest, out + q * rows.width + whole);
}

// Calls work(0), ..., work(count - 1) on the threads of the pool and on this one. A thread of the pool that
// comes late finds nothing to do: nobody waits for it, so a pool that is busy or has one thread only does no harm.
void in_parallel(ffi::ThreadPool& pool, int64_t count, const std::function<void(int64_t)>& work) {
  struct State {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable all;
    int64_t done = 0;
  };
  const auto state = std::make_shared<State>();
  const std::function<void()> help = [state, count, &work] {
    int64_t done = 0;
    for (int64_t i; (i = state->next++) < count; ++done) work(i);
    if (done == 0) return;
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->done += done;
    if (state->done == count) state->all.notify_one();
  };
  for (int64_t i = 1; i < std::min(count, pool.num_threads()); ++i) pool.Schedule(std::function<void()>(help));
  help();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->all.wait(lock, [&] { return state->done == count; });
}

ffi::Error run(ffi::ThreadPool pool, ffi::BufferR2<ffi::F32> scores, ffi::BufferR2<ffi::F32> rows,
               ffi::ResultBufferR2<ffi::F32> result) {
  const int64_t count = rows.dimensions()[0];
  const Matrix factors{scores.typed_data(), scores.dimensions()[1]};
  const Matrix all{rows.typed_data(), rows.dimensions()[1]};
  float* out = result->typed_data();
  const int64_t size = static_cast<int64_t>(result->element_count());
  const int64_t stretch = std::max(kLeastStretch, (count + kMostStretches - 1) / kMostStretches);
  const int64_t stretches = std::max<int64_t>(1, (count + stretch - 1) / stretch);
  std::vector<float> sums((stretches - 1) * size);
  in_parallel(pool, stretches, [&](int64_t i) {
    const int64_t first = i * stretch;
    combine(factors.from(first, 0), all.from(first, 0), std::min(stretch, count - first),
            i == 0 ? out : &sums[(i - 1) * size]);
  });
  for (int64_t i = 1; i < stretches; ++i)
    for (int64_t k = 0; k < size; ++k) out[k] += sums[(i - 1) * size + k];
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(lamina_combine, run,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::BufferR2<ffi::F32>>()
                                  .Arg<ffi::BufferR2<ffi::F32>>()
                                  .Ret<ffi::BufferR2<ffi::F32>>());
