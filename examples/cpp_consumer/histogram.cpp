// A consumer in C++ of what Python puts: it looks at the arrays where they are.
//
//   python3 pictures.py & build/histogram
#include <ringbuf.h>
#include <ringbuf_frame.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

static void check(int rc, const std::string &what)
{
	if (rc < 0)
		throw std::runtime_error(what + ": " + std::strerror(-rc));
}

// An array of a frame; its dtype has to be the one that T stands for.
template <typename T> struct View {
	const T *data;
	std::size_t size;

	View(const rb_slot &slot, const char *path, const char *dtype)
	{
		rb_array found{};
		check(rb_frame_find(slot.data, slot.bytes, path, &found), std::string("no array ") + path);
		if (std::strcmp(found.dtype, dtype) != 0)
			throw std::runtime_error(std::string(path) + " holds " + found.dtype + ", not " + dtype);
		data = static_cast<const T *>(found.data);
		size = found.bytes / sizeof(T);
	}
	const T *begin() const { return data; }
	const T *end() const { return data + size; }
};

int main(int argc, char **argv)
try {
	rb_ring *handle = nullptr;
	check(rb_attach(argc > 1 ? argv[1] : "pictures", &handle), "cannot attach");
	std::unique_ptr<rb_ring, decltype(&rb_detach)> ring(handle, &rb_detach);
	std::array<std::uint64_t, 4> histogram{};
	std::uint64_t messages = 0;
	double sum = 0;

	for (;;) {
		rb_slot slot;
		int rc = rb_take(ring.get(), nullptr, RB_FOREVER, &slot);
		if (rc == -EPIPE) // finished, and all is read
			break;
		check(rc, "cannot take");
		for (std::uint8_t pixel : View<std::uint8_t>(slot, "/image", "|u1"))
			histogram[pixel / 64]++;
		for (float weight : View<float>(slot, "/labels/weights", "<f4"))
			sum += weight;
		messages++;
		check(rb_release(ring.get(), &slot), "cannot release");
	}
	std::cout << messages << " messages, pixels by quarter:";
	for (std::uint64_t count : histogram)
		std::cout << ' ' << count;
	std::cout << ", weights sum to " << sum << '\n';
	return 0;
} catch (const std::exception &error) {
	std::cerr << "histogram: " << error.what() << '\n';
	return 1;
}
