// A bulk link over UCX: payloads in pieces, each an active message whose bytes stay with the sender
// until the receiver has the buffer for them.
//   Bounds: kUcxPieceBytes a piece; kUcxPiecesMax of a link on their way, and as many promised here
//           without a buffer: beyond, the other end breaks the rules.
//   Ends:   UCX notices a killed process, and neither a stopped one nor, while nothing travels, one
//           that has closed its end: heartbeats and the connection do. What is on its way when a
//           link ends is cancelled, and its memory stays until UCX has let it go.
//   The rest: engine/net/bulk/bulk_link.h.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/net/bulk/bulk_link.h"
#include "engine/net/ucx/ucx_worker.h"

namespace swarmline {

inline constexpr std::size_t kUcxPieceBytes = 1 * kMiB;
inline constexpr std::size_t kUcxPiecesMax = 4;

class UcxLink final : public BulkLink, public std::enable_shared_from_this<UcxLink> {
 public:
  // `on_here`: the other end has said its first word, once.
  UcxLink(std::shared_ptr<UcxWorker> worker, std::string token, std::function<void()> on_here);
  ~UcxLink() override;

  // To the other end's worker, by its address. Once.
  Result<void> dial(const std::string& address);
  void say_here();

  void start(Handlers handlers) override;
  void send(std::vector<SharedBytes> payload) override;
  void receive(Buffer into) override;
  void close() override;
  bool needs_checksums() const override { return true; }

 private:
  struct Leaving {
    std::vector<SharedBytes> parts;
    std::size_t part = 0, at = 0;  // the next byte
    std::uint64_t offset = 0;
    std::size_t under_way = 0;  // pieces
    bool is_cut() const { return part == parts.size(); }
  };
  struct Asked {
    std::shared_ptr<Buffer> into;
    std::uint64_t promised = 0, filled = 0;  // bytes
  };
  struct Promise {
    UcxHead head;
    void* data;
    std::size_t bytes;
  };
  struct Request;  // of UCX, under way

  bool hear(const UcxArrival& arrival);
  void settle_soon();
  void settle();
  void fetch_promised();
  bool fits(const Promise& promise) const;
  void fetch(const Promise& promise);
  void cut_pieces();
  static SharedBytes next_piece(Leaving& leaving);
  void send_piece(SharedBytes piece, std::uint64_t payload, std::uint64_t offset);
  UcxHead head(std::uint32_t kind) const;
  void end_later(Error error);
  void took(const Request& request, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_fetched(void* request, ucs_status_t status, size_t bytes, void* user);
  static void on_error(void* user, ucp_ep_h ep, ucs_status_t status);

  std::shared_ptr<UcxWorker> worker_;
  const std::string token_;
  std::function<void()> on_here_;
  ucp_ep_h ep_ = nullptr;
  Handlers handlers_;
  std::deque<Leaving> leaving_;
  std::uint64_t first_leaving_ = 0;  // its number
  std::size_t pieces_under_way_ = 0;
  std::deque<Asked> asked_;
  std::uint64_t first_asked_ = 0;  // its number
  std::uint64_t reported_ = 0;     // of the first one asked for
  std::deque<Promise> promises_;   // in order, of bytes that nobody fetches yet
  std::optional<Error> ending_;
  bool settle_posted_ = false, closed_ = false;
};

}  // namespace swarmline
