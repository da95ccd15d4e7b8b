#include "transport/bootstrap/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "transport/bootstrap/byte_codec.h"
#include "transport/bootstrap/job.h"

namespace tilewire {
namespace {

std::string hash_hex(const std::string& text) { return to_hex(sha256(to_bytes(text))); }

// FIPS 180-4 examples.
TEST(Sha256, PublishedVectorsAreMet) {
  EXPECT_EQ(hash_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_hex("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
                     "mnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hash_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSameHashAsTheWhole) {
  const Bytes data = to_bytes(std::string(300, 'x'));
  for (size_t cut = 0; cut <= data.size(); cut += 7) {
    Sha256 hash;
    hash.update(std::span(data).first(cut));
    hash.update(std::span(data).subspan(cut));
    EXPECT_EQ(hash.finish(), sha256(data)) << "cut at " << cut;
  }
}

// RFC 4231, cases 1, 2, 3 and 6 (a key longer than a block).
TEST(HmacSha256, PublishedVectorsAreMet) {
  EXPECT_EQ(to_hex(hmac_sha256(Bytes(20, std::byte{0x0b}), to_bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(to_hex(hmac_sha256(to_bytes("Jefe"), to_bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(hmac_sha256(Bytes(20, std::byte{0xaa}), Bytes(50, std::byte{0xdd}))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(to_hex(hmac_sha256(Bytes(131, std::byte{0xaa}),
                               to_bytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(ConstantTimeCompare, OneBitAnywhereIsSeen) {
  const Digest a = sha256(to_bytes("a"));
  EXPECT_TRUE(equal_in_constant_time(a, a));
  for (size_t i = 0; i < a.size() * 8; ++i) {
    Digest b = a;
    b[i / 8] ^= static_cast<std::byte>(1u << (i % 8));
    EXPECT_FALSE(equal_in_constant_time(a, b)) << "bit " << i;
  }
  EXPECT_FALSE(equal_in_constant_time(a, std::span(a).first(31)));
}

TEST(Job, NoncesAndKeysDoNotRepeat) {
  EXPECT_NE(random_nonce(), random_nonce());
  const Nonce nonce = random_nonce();
  EXPECT_EQ(derive_job_key("s", nonce).key, derive_job_key("s", nonce).key);
  EXPECT_NE(derive_job_key("s", nonce).key, derive_job_key("t", nonce).key);
  EXPECT_NE(derive_job_key("s", nonce).key, derive_job_key("s", random_nonce()).key);
  EXPECT_EQ(derive_job_key("s", nonce).nonce_hex().size(), 32u);
}

}  // namespace
}  // namespace tilewire
