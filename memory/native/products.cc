// The two products of retrieval for a few queries, in float32:
//   rows [n, D] . queries^T [D, B]  ->  [n, B]
//   scores^T [B, n] . rows [n, F]   ->  [B, F]
// The rows are n of a longer array, from a `start` on, and are read where they lie.
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
constexpr int64_t kLeastBlock = 16;     // rows in the cache at once, for `combine`
constexpr int64_t kMostBlock = 128;
constexpr int64_t kBlockNumbers = 1 << 14;  // of those rows, where that is between the two
constexpr int64_t kMostStretches = 8;   // of all rows: each has sums of its own until the end
constexpr int64_t kLeastStretch = 256;  // rows
constexpr int kRows = 6;                // of a panel of inner products
constexpr int64_t kRound = 24;          // rows whose inner products with all queries are taken in turn
constexpr int64_t kAhead = 1 << 11;     // numbers that are fetched before they are read, at least
constexpr int64_t kGroup = 4 * kLanes;  // queries of a panel of inner products

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

using Numbers = ffi::BufferR2<ffi::F32>;
using Start = ffi::BufferR0<ffi::S32>;  // the first of the rows that are read
using Answer = ffi::ResultBufferR2<ffi::F32>;

struct Matrix {
  const float* numbers;
  int64_t width;  // of a row

  Matrix(const float* numbers, int64_t width) : numbers(numbers), width(width) {}
  explicit Matrix(Numbers buffer) : Matrix(buffer.typed_data(), buffer.dimensions()[1]) {}

  const float* row(int64_t number) const { return numbers + number * width; }
  Matrix from(int64_t row, int64_t column) const { return {numbers + row * width + column, width}; }
};

int64_t first_of(Start start) { return *start.typed_data(); }

bool inside(Numbers rows, Start start, int64_t count) {
  return first_of(start) >= 0 && first_of(start) + count <= rows.dimensions()[0];
}

ffi::Error outside() { return ffi::Error::InvalidArgument("there are no such rows"); }

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

// Queries in groups of some vectors, each group packed as [D, V vectors]: number d of all its queries stands together.
class Packed {
 public:
  Packed(Matrix queries, int64_t batch)
      : width_(queries.width), batch_(batch), numbers_(new float[width_ * vectors() * kLanes]()) {
    for (int64_t q = 0; q < batch; ++q) {
      const int64_t first = q / kGroup * kGroup, lanes = group_vectors(first) * kLanes;
      for (int64_t d = 0; d < width_; ++d) numbers_[first * width_ + d * lanes + q - first] = queries.row(q)[d];
    }
  }

  int64_t batch() const { return batch_; }
  const float* group(int64_t first) const { return &numbers_[first * width_]; }
  int64_t group_vectors(int64_t first) const { return std::min(kGroup / kLanes, vectors() - first / kLanes); }

 private:
  int64_t vectors() const { return (batch_ + kLanes - 1) / kLanes; }

  int64_t width_, batch_;
  std::unique_ptr<float[]> numbers_;
};

// Inner products of R rows and of a group of V vectors of queries, of which `wanted` are there. There are `steps`
// sums for each, of every so many numbers, since an addition must wait for the one before. Rows further on are
// fetched. Answers for a row and the next are `stride` numbers apart.
template <int R, int V>
inline void inner(Matrix rows, const float* packed, int64_t wanted, float* out, int64_t stride) {
  constexpr int steps = 4 / V;
  const int64_t ahead = std::max<int64_t>(2, kAhead / (R * rows.width)) * R;  // rows
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
    unrolled<R>([&](auto r) INLINE { __builtin_prefetch(rows.row(ahead + r) + d, 0, 2); });
    for (int64_t i = 0; i < kLanes; i += steps) unrolled<steps>([&](auto step) INLINE { add(d + i, step); });
  }
  for (; d < rows.width; ++d) add(d, std::integral_constant<int, 0>{});
  unrolled<R>([&](auto r) INLINE {
    unrolled<V>([&](auto v) INLINE {
      Vector sum = sums[r * V + v];
      unrolled<steps - 1>([&](auto step) INLINE { sum += sums[((step + 1) * R + r) * V + v]; });
      float* to = out + r * stride + v * kLanes;
      const int64_t left = wanted - v * kLanes;
      if (left >= kLanes) return store(to, sum);
      float padded[kLanes];
      store(padded, sum);
      std::copy_n(padded, left, to);
    });
  });
}

// Inner products of some rows and of all queries, [count, B].
void inner_of_rows(Matrix rows, int64_t count, const Packed& queries, float* out) {
  const int64_t batch = queries.batch();
  for (int64_t q = 0; q < batch; q += kGroup) {
    const auto run = [&](auto vectors) {
      int64_t r = 0;
      const auto step = [&](auto most) {
        for (; r + most <= count; r += most)
          inner<most, vectors>(rows.from(r, 0), queries.group(q), batch - q, out + r * batch + q, batch);
      };
      step(std::integral_constant<int, kRows>{});
      step(std::integral_constant<int, 1>{});
    };
    switch (queries.group_vectors(q)) {
      case 1: run(std::integral_constant<int, 1>{}); break;
      case 2: run(std::integral_constant<int, 2>{}); break;
      case 3: run(std::integral_constant<int, 3>{}); break;
      default: run(std::integral_constant<int, 4>{});
    }
  }
}

ffi::Error inner_products(ffi::ThreadPool pool, Numbers all_rows, Start start, Numbers all_queries, Answer result) {
  const int64_t count = result->dimensions()[0];
  if (!inside(all_rows, start, count)) return outside();
  const Packed queries(Matrix(all_queries), all_queries.dimensions()[0]);
  const Matrix rows = Matrix(all_rows).from(first_of(start), 0);
  const int64_t stretch = std::max(kLeastStretch, count / 64) / kRound * kRound;
  in_parallel(pool, (count + stretch - 1) / stretch, [&](int64_t i) {
    const int64_t end = std::min(count, (i + 1) * stretch);
    for (int64_t r = i * stretch; r < end; r += kRound)
      inner_of_rows(rows.from(r, 0), std::min(kRound, end - r), queries, result->typed_data() + r * queries.batch());
  });
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
      if (fetch) __builtin_prefetch(row + count * rows.width + w * kLanes, 0, 2);
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
  const int64_t most = std::clamp(kBlockNumbers / rows.width, kLeastBlock, kMostBlock);
  for (int64_t r = 0; r < count; r += most) {
    const int64_t size = std::min(most, count - r);
    const Matrix block = rows.from(r, 0), factors = scores.from(r, 0);
    int64_t f = 0;
    for (; columns.width(f) > kLanes; f += 2 * kLanes)
      panels<2>(factors, block.from(0, f), size, sums + scores.width * f);
    if (f < columns.whole()) {
      panels<1>(factors, block.from(0, f), size, sums + scores.width * f);
      f += kLanes;
    }
    if (f == columns.count) continue;
    float padded[kMostBlock * kLanes] = {};
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

ffi::Error combine(ffi::ThreadPool pool, Numbers all_rows, Start start, Numbers scores, Answer result) {
  const int64_t count = scores.dimensions()[0];
  if (!inside(all_rows, start, count)) return outside();
  const Matrix factors(scores), all = Matrix(all_rows).from(first_of(start), 0);
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
                                    .Arg<Numbers>()                 \
                                    .Arg<Start>()                   \
                                    .Arg<Numbers>()                 \
                                    .Ret<Numbers>())

LAMINA_PRODUCT(lamina_inner_products, inner_products);
LAMINA_PRODUCT(lamina_combine, combine);
