// The two products of retrieval for a few queries, in float32:
//   rows [n, D] . queries^T [D, B]  ->  [n, B]
//   scores^T [B, n] . rows [n, F]   ->  [B, F]
//
// Rows are read once. What is added up stays in registers, a panel of some rows or columns by some queries: so
// loops over panels are unrolled. Sums are added up in an order that depends on shapes alone, not on how many
// threads there are.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "xla/ffi/api/ffi.h"

#define INLINE __attribute__((always_inline))

namespace {

namespace ffi = xla::ffi;

constexpr int kLanes = 16;              // numbers of a vector
constexpr int64_t kBlock = 32;          // rows in the cache at once
constexpr int64_t kMostStretches = 8;   // of all rows: each has sums of its own until the end
constexpr int64_t kLeastStretch = 256;  // rows
constexpr int kRows = 6;                // of a panel of inner products

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

inline INLINE Vector load(const float* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

inline INLINE void store(float* to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }

inline INLINE Vector everywhere(float number) { return number - Vector{}; }

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

// Inner products of R rows and of V vectors of queries, packed as [D, V vectors]. There are `steps` sums for
// each, of every so many numbers, since an addition must wait for the one before. The rows after next are fetched.
template <int R, int V>
inline void inner(Matrix rows, const float* packed, float* out, int64_t queries) {
  constexpr int steps = 4 / V;
  Vector sums[steps * R * V] = {};
  const auto add = [&](int64_t d, auto step) INLINE {
    Vector vectors[V];
    unrolled<V>([&](auto v) INLINE { vectors[v] = load(packed + ((d + step) * V + v) * kLanes); });
    unrolled<R>([&](auto r) INLINE {
      const Vector number = everywhere(rows.row(r)[d + step]);
      unrolled<V>([&](auto v) INLINE { sums[(step * R + r) * V + v] += number * vectors[v]; });
    });
  };
  int64_t d = 0;
  for (; d + kLanes <= rows.width; d += kLanes) {
    unrolled<R>([&](auto r) INLINE { __builtin_prefetch(rows.row(2 * R + r) + d, 0, 3); });
    for (int64_t i = 0; i < kLanes; i += steps) unrolled<steps>([&](auto step) INLINE { add(d + i, step); });
  }
  for (; d < rows.width; ++d) add(d, std::integral_constant<int, 0>{});
  unrolled<R>([&](auto r) INLINE {
    unrolled<V>([&](auto v) INLINE {
      Vector sum = sums[r * V + v];
      unrolled<steps - 1>([&](auto step) INLINE { sum += sums[((step + 1) * R + r) * V + v]; });
      float padded[kLanes];
      store(padded, sum);
      const int64_t wanted = std::min<int64_t>(kLanes, queries - v * kLanes);
      if (wanted > 0) std::copy_n(padded, wanted, out + r * queries + v * kLanes);
    });
  });
}

// Inner products of all rows and of up to V vectors of queries.
template <int V>
void inner_of_all(ffi::ThreadPool& pool, Matrix rows, int64_t count, Matrix queries, int64_t batch, float* out) {
  const std::unique_ptr<float[]> packed(new float[rows.width * V * kLanes]());
  for (int64_t q = 0; q < batch; ++q)
    for (int64_t d = 0; d < rows.width; ++d) packed[d * V * kLanes + q] = queries.row(q)[d];
  const int64_t stretch = std::max(kLeastStretch, count / 64) / kRows * kRows;
  in_parallel(pool, (count + stretch - 1) / stretch, [&](int64_t i) {
    int64_t r = i * stretch;
    const int64_t end = std::min(count, r + stretch);
    for (; r + kRows <= end; r += kRows) inner<kRows, V>(rows.from(r, 0), packed.get(), out + r * batch, batch);
    for (; r < end; ++r) inner<1, V>(rows.from(r, 0), packed.get(), out + r * batch, batch);
  });
}

ffi::Error inner_products(ffi::ThreadPool pool, ffi::BufferR2<ffi::F32> rows, ffi::BufferR2<ffi::F32> queries,
                          ffi::ResultBufferR2<ffi::F32> result) {
  const int64_t batch = queries.dimensions()[0], width = rows.dimensions()[1];
  if (batch > 2 * kLanes) return ffi::Error::InvalidArgument("at most 32 queries");
  const auto run = batch <= kLanes ? inner_of_all<1> : inner_of_all<2>;
  run(pool, {rows.typed_data(), width}, rows.dimensions()[0], {queries.typed_data(), width}, batch,
      result->typed_data());
  return ffi::Error::Success();
}

// Adds `count` rows times their scores to the sums [Q, W vectors] of Q queries and W vectors of columns. Rows are
// taken in blocks that stay in the cache: while one is added up the next one is fetched.
template <int Q, int W>
inline void panel(Matrix scores, Matrix rows, int64_t count, bool fetch, float* to) {
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
      const Vector factor = everywhere(score[q]);
      unrolled<W>([&](auto w) INLINE { sums[q * W + w] += factor * vectors[w]; });
    });
  }
  unrolled<Q>([&](auto q) INLINE {
    unrolled<W>([&](auto w) INLINE {
      float* sum = to + (q * W + w) * kLanes;
      store(sum, load(sum) + sums[q * W + w]);
    });
  });
}

// The same for all queries. The first panel fetches the next block (behind the last one, which does no harm).
template <int W>
void panels(Matrix scores, Matrix rows, int64_t count, float* to) {
  int64_t q = 0;
  const auto step = [&](auto most) {
    for (; q + most <= scores.width; q += most)
      panel<most, W>(scores.from(0, q), rows, count, q == 0, to + q * W * kLanes);
  };
  unrolled<4>([&](auto k) { step(std::integral_constant<int, (8 >> k)>{}); });
}

// Panels lie one behind the other, that of the columns from `first` on at sums[queries * first]: as parts of an
// answer [queries, columns] they would be on a page for each query.
struct Columns {
  int64_t count;

  int64_t whole() const { return count / kLanes * kLanes; }
  int64_t padded() const { return (count + kLanes - 1) / kLanes * kLanes; }
  int64_t width(int64_t first) const { return first + 2 * kLanes <= whole() ? 2 * kLanes : kLanes; }
};

// All panels of some rows, [queries * columns padded].
void combine_rows(Matrix scores, Matrix rows, int64_t count, float* sums) {
  const Columns columns{rows.width};
  std::fill_n(sums, scores.width * columns.padded(), 0.0f);
  for (int64_t r = 0; r < count; r += kBlock) {
    const int64_t size = std::min(kBlock, count - r);
    const Matrix block = rows.from(r, 0), factors = scores.from(r, 0);
    int64_t f = 0;
    for (; columns.width(f) > kLanes; f += 2 * kLanes)
      panels<2>(factors, block.from(0, f), size, sums + scores.width * f);
    if (f < columns.whole()) {
      panels<1>(factors, block.from(0, f), size, sums + scores.width * f);
      f += kLanes;
    }
    if (f == columns.count) continue;
    float padded[kBlock * kLanes] = {};
    for (int64_t i = 0; i < size; ++i) std::copy_n(block.row(i) + f, columns.count - f, padded + i * kLanes);
    panels<1>(factors, {padded, kLanes}, size, sums + scores.width * f);
  }
}

// Adds panels to an answer [queries, columns].
void add(const float* sums, int64_t queries, Columns columns, float* out) {
  for (int64_t f = 0; f < columns.count; f += columns.width(f)) {
    const int64_t width = columns.width(f), wanted = std::min(width, columns.count - f);
    for (int64_t q = 0; q < queries; ++q)
      for (int64_t i = 0; i < wanted; ++i) out[q * columns.count + f + i] += sums[queries * f + q * width + i];
  }
}

ffi::Error combine(ffi::ThreadPool pool, ffi::BufferR2<ffi::F32> scores, ffi::BufferR2<ffi::F32> rows,
                   ffi::ResultBufferR2<ffi::F32> result) {
  const int64_t count = rows.dimensions()[0];
  const Matrix factors{scores.typed_data(), scores.dimensions()[1]};
  const Matrix all{rows.typed_data(), rows.dimensions()[1]};
  const Columns columns{all.width};
  const int64_t size = factors.width * columns.padded();
  const int64_t stretch = std::max(kLeastStretch, (count + kMostStretches - 1) / kMostStretches);
  const int64_t stretches = (count + stretch - 1) / stretch;
  const std::unique_ptr<float[]> sums(new float[stretches * size]);
  in_parallel(pool, stretches, [&](int64_t i) {
    const int64_t first = i * stretch;
    combine_rows(factors.from(first, 0), all.from(first, 0), std::min(stretch, count - first), &sums[i * size]);
  });
  std::fill_n(result->typed_data(), result->element_count(), 0.0f);
  for (int64_t i = 0; i < stretches; ++i) add(&sums[i * size], factors.width, columns, result->typed_data());
  return ffi::Error::Success();
}

}  // namespace

#define LAMINA_PRODUCT(name, function)                              \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, function,                     \
                                ffi::Ffi::Bind()                    \
                                    .Ctx<ffi::ThreadPool>()         \
                                    .Arg<ffi::BufferR2<ffi::F32>>() \
                                    .Arg<ffi::BufferR2<ffi::F32>>() \
                                    .Ret<ffi::BufferR2<ffi::F32>>())

LAMINA_PRODUCT(lamina_inner_products, inner_products);
LAMINA_PRODUCT(lamina_combine, combine);
