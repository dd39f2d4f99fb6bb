/* tutti/datasets.h: data in files of other programs: NumPy's arrays, and data sets that stand on files.
 *
 * Files are taken for hostile: sizes are checked before memory is taken, and whatever is wrong with one is an error
 * that names it. data.h says what holds for all data sets. */
#ifndef TUTTI_DATASETS_H
#define TUTTI_DATASETS_H

#include <tutti/data.h>

TT_BEGIN_DECLS

/* ---- NumPy's files ---- */

/* Read a .npy file (numpy.save) into a tensor the caller owns (never a scope's). Types: bool, signed integers, uint8,
 * float16, float32 and float64 as they are; uint16 becomes i32, uint32 and uint64 i64; the two raw bytes ("V2") as
 * which ml_dtypes' bfloat16 is written are bf16. Either byte order. An array in Fortran order keeps its order in
 * memory, as in torch.from_numpy(): tt_contiguous() gives the other. Bytes behind the elements are ignored, as NumPy
 * does. *out is NULL after a failure. Errors, all naming the file: TT_ERR_IO it can't be opened or read; TT_ERR_FORMAT
 * not such a file, a header that is none, dimensions that overflow or need more bytes than there are, a bool that is
 * neither 0 nor 1; TT_ERR_UNSUPPORTED what Tutti has no tensor for, by name: complex numbers, texts, dates, records,
 * objects (which would be code), a uint64 above i64's largest value, more than TT_MAX_DIMS dimensions. */
TT_API TT_NODISCARD tt_status tt_npy_read(tt_tensor **out, const char *path);

/* Write x (any element type, layout and device) as a .npy file, in C order; bf16 as ml_dtypes does. Atomic: a kill at
 * any moment leaves the old or the new file whole. Errors: TT_ERR_INVALID no path; TT_ERR_IO; TT_ERR_MEMORY. x NULL: as
 * tt_item(). */
TT_API TT_NODISCARD tt_status tt_npy_write(const tt_tensor *x, const char *path);

/* The arrays of a .npz file. */
typedef struct tt_npz tt_npz;

/* Read a .npz file (numpy.savez, savez_compressed), all of its arrays, by the rules of tt_npy_read(). *out: the
 * caller's to free. Errors besides those: TT_ERR_FORMAT no whole zip archive, a record that is no .npy or comes twice,
 * whose checksum is wrong, or that claims more than its packed bytes can hold; TT_ERR_UNSUPPORTED a record packed in
 * another way than deflate, or encrypted; also if there is no libzip. */
TT_API TT_NODISCARD tt_status tt_npz_read(tt_npz **out, const char *path);

/* Return the arrays in the file's order, named without ".npy" (NULL gives NULL). Borrowed from `file`. */
TT_API const tt_named_tensors *tt_npz_tensors(const tt_npz *file);

/* NULL is allowed. */
TT_API void tt_npz_free(tt_npz *file);

/* Write tensors as a .npz file, as numpy.savez() does: not compressed. Atomic. Errors as tt_npy_write(), and
 * TT_ERR_INVALID a name that is empty, comes twice or has 64 KiB or more. */
TT_API TT_NODISCARD tt_status tt_npz_write(const char *path, const tt_named_tensors *tensors);

/* ---- classes ---- */

/* Return the names of the classes that a set's targets number, and how many there are in *count (may be NULL): of the
 * data sets below, and of subsets of them. Borrowed: valid while the set is. NULL and 0 if the set has none, and for
 * NULL. */
TT_API const char *const *tt_dataset_classes(const tt_dataset *dataset, int64_t *count);

/* ---- CIFAR ---- */

/* CIFAR-10 in its binary version, data_batch_1.bin to data_batch_5.bin or test_batch.bin, in `dir` itself or in
 * `dir`/cifar-10-batches-bin: x (3,32,32) u8, red, green, blue; y a scalar i64. All of it is read into memory (154 MB).
 * Errors: TT_ERR_IO names what was looked for; TT_ERR_FORMAT, with the file, no whole number of images or a label out
 * of range. torchvision: CIFAR10, which reads another form of the same files. */
TT_API tt_dataset *tt_cifar10(const char *dir, bool train);

typedef struct tt_cifar100_args {
    const char *dir; /* required */
    bool train;      /* required */
    TT_OPTIONS;
    bool coarse; /* targets are the 20 superclasses instead of the 100 classes */
    char tt_end; /* not an option: see base.h */
} tt_cifar100_args;
#define TT_CIFAR100_ARGS_INIT TT_ARGS_INIT

/* CIFAR-100 in its binary version, train.bin or test.bin in `dir` itself or in `dir`/cifar-100-binary: x, y and errors
 * as those of tt_cifar10(). torchvision: CIFAR100.
 *   tt_cifar100(dir, true) */
TT_API tt_dataset *tt_cifar100_with(const tt_cifar100_args *args, size_t size);
#ifndef __cplusplus
#define tt_cifar100(dir_, ...) tt_cifar100_with(TT_ARGS(tt_cifar100_args, .dir = (dir_), .train = __VA_ARGS__))
#endif

/* ---- tokens ---- */

/* How a file stores a token; all little-endian. */
typedef enum tt_token_type { TT_TOKEN_U16, TT_TOKEN_U32, TT_TOKEN_I32 } tt_token_type;

typedef struct tt_token_dataset_args {
    const char *path;   /* required */
    int64_t block_size; /* required: tokens of an example, >= 1 */
    TT_OPTIONS;
    tt_token_type type; /* of the tokens of a file without a header */
    int64_t stride;     /* tokens from the begin of an example to that of the next one; 0 = block_size */
    int64_t vocab_size; /* tokens must be below it; 0 = not checked */
    char tt_end;        /* not an option: see base.h */
} tt_token_dataset_args;
#define TT_TOKEN_DATASET_ARGS_INIT TT_ARGS_INIT

/* A file of tokens, in windows: x and y are (block_size) i64, y what follows each token of x:
 *   tt_token_dataset("train.bin", 1024, .vocab_size = 50257)
 * The file is a plain run of tokens, as nanoGPT's, or has the header of 256 ints that llm.c's have (magic 20240520:
 * u16; 20240801: u32), which says what they are. It may be larger than memory: an example is read when it is asked for,
 * from the system's cache of the file, and not through a mapping, in which a file that is cut short under us would end
 * the process. The file stays open until the set is freed. Several threads may read examples at once.
 * Errors: TT_ERR_INVALID a number out of range; TT_ERR_IO can't be opened; TT_ERR_FORMAT, with the path, no whole
 * number of tokens, fewer than block_size + 1, another version of the header or other than its number of tokens. Of an
 * example: TT_ERR_FORMAT a token that is negative or not below vocab_size, with its place; TT_ERR_IO the file has
 * become shorter. */
TT_API tt_dataset *tt_token_dataset_with(const tt_token_dataset_args *args, size_t size);

typedef struct tt_window_dataset_args {
    tt_tensor *tokens;  /* required: (n) i64, taken over (freed with the data set; also on failure) */
    int64_t block_size; /* required: as above */
    TT_OPTIONS;
    int64_t stride; /* as above */
    char tt_end;    /* not an option: see base.h */
} tt_window_dataset_args;
#define TT_WINDOW_DATASET_ARGS_INIT TT_ARGS_INIT

/* The same windows of tokens in memory: tt_window_dataset(tokens, 256, .stride = 1). TT_ERR_DTYPE, TT_ERR_SHAPE: other
 * tokens; TT_ERR_UNSUPPORTED: they lie on a device that pointers don't reach. */
TT_API tt_dataset *tt_window_dataset_with(const tt_window_dataset_args *args, size_t size);
#ifndef __cplusplus
#define tt_token_dataset(path_, ...) \
    tt_token_dataset_with(TT_ARGS(tt_token_dataset_args, .path = (path_), .block_size = __VA_ARGS__))
#define tt_window_dataset(tokens_, ...) \
    tt_window_dataset_with(TT_ARGS(tt_window_dataset_args, .tokens = (tokens_), .block_size = __VA_ARGS__))
#endif

/* ---- pictures ---- */

/* Read a JPEG or PNG file, told apart by content, into a tensor (3, height, width) of u8, red, green, blue, that the
 * caller owns (never a scope's). Palettes and grays are looked up, of 16 bits the upper 8 stay, transparency is left
 * out and a note of the camera's orientation (EXIF) ignored: the pixels are those of PIL's convert("RGB"), except for
 * 16-bit grays, of which PIL makes something else. JPEG's CMYK is taken for Adobe's, as by PIL.
 * *out is NULL after a failure. Errors, all naming the file: TT_ERR_IO; TT_ERR_FORMAT the file is neither, corrupt, cut
 * short, or has more than 178,956,970 pixels (PIL's limit, too) or than its bytes can hold; TT_ERR_UNSUPPORTED libjpeg
 * or libpng, which the first picture loads, is missing; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_image_read(tt_tensor **out, const char *path);

/* Write x, u8 (3, height, width) or (1, height, width) or (height, width), as a PNG file in color or gray. Atomic.
 * Errors: TT_ERR_DTYPE, TT_ERR_SHAPE another tensor; TT_ERR_INVALID no path; TT_ERR_IO; TT_ERR_MEMORY. x NULL: as
 * tt_item(). */
TT_API TT_NODISCARD tt_status tt_image_write_png(const tt_tensor *x, const char *path);

typedef struct tt_image_folder_args {
    const char *dir; /* required */
    int64_t height;  /* required: of each example, >= 1 */
    int64_t width;   /* required */
    TT_OPTIONS;
    int64_t resize; /* as Resize(resize), CenterCrop((height, width)): the shorter side becomes so long; at least
                       height and width. 0 = as Resize((height, width)), whatever that does to the proportions */
    char tt_end;    /* not an option: see base.h */
} tt_image_folder_args;
#define TT_IMAGE_FOLDER_ARGS_INIT TT_ARGS_INIT

/* The pictures below the folders of `dir`, each folder a class: tt_image_folder("train", 224, 224, .resize = 256). x is
 * (3, height, width) u8, y a scalar i64. Classes are the folders' names, sorted; examples are the files .jpg, .jpeg and
 * .png in any case, at any depth, sorted within a class by folder and name: torchvision's ImageFolder. They are read
 * and resized when they are asked for (bilinear, with antialias: the pixels of torchvision's Resize of a PIL image), by
 * any number of threads at once.
 * Errors: TT_ERR_IO a folder can't be read; TT_ERR_NOT_FOUND there are no folders, or a class has no picture;
 * TT_ERR_INVALID a number out of range. Of an example: as tt_image_read(). */
TT_API tt_dataset *tt_image_folder_with(const tt_image_folder_args *args, size_t size);
#ifndef __cplusplus
#define tt_image_folder(dir_, height_, ...) \
    tt_image_folder_with(TT_ARGS(tt_image_folder_args, .dir = (dir_), .height = (height_), .width = __VA_ARGS__))
#endif

/* ---- texts ---- */

/* Read a file as a tensor (n) of u8 that the caller owns (never a scope's): a text as its bytes. *out is NULL after a
 * failure. Errors, naming the file: TT_ERR_IO, TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_bytes_read(tt_tensor **out, const char *path);

/* Write the elements of x, u8 of any shape, in rising order of their indices, and nothing else. Atomic. Blocks while it
 * writes; safe from several threads. Errors, naming the file: TT_ERR_DTYPE another type; TT_ERR_INVALID no path, or a
 * directory, a FIFO or the like at it; TT_ERR_IO; TT_ERR_MEMORY. x NULL: as tt_item(). NumPy: x.tofile(path). */
TT_API TT_NODISCARD tt_status tt_bytes_write(const tt_tensor *x, const char *path);

/* Cuts texts into tokens, which are numbers, and makes texts of tokens. Several threads may use one at once. */
typedef struct tt_tokenizer tt_tokenizer;

/* A tokenizer with one token for each byte that a text of `size` bytes has, in rising order: of ASCII texts, nanoGPT's
 * vocabulary of characters. TT_ERR_INVALID: no text. */
TT_API tt_tokenizer *tt_char_vocab(const char *text, size_t size);

/* GPT-2's byte pair encoding from its two files, "vocab.json" and "merges.txt": the tokens that the published
 * tokenizers give, for any text; "<|endoftext|>" in a text is cut as any other (tt_tokenizer_find() gives its number).
 * Bytes that are not UTF-8 come back, too. Errors, with the path: TT_ERR_IO; TT_ERR_FORMAT no such files; numbers that
 * are not 0 to n - 1, each once; a byte without a token; merges of tokens, or into one, that the vocabulary lacks. */
TT_API tt_tokenizer *tt_gpt2_tokenizer(const char *vocab_path, const char *merges_path);

/* Return the number of tokens of the vocabulary; 0 for NULL. */
TT_API int64_t tt_tokenizer_size(const tt_tokenizer *tokenizer);

/* Return the token that is exactly these bytes; -1: there is none. */
TT_API int64_t tt_tokenizer_find(const tt_tokenizer *tokenizer, const char *text, size_t size);

/* Make a tensor (n) of i64 of the tokens of a text of `size` bytes, which the caller owns (never a scope's). *out is
 * NULL after a failure. Errors: TT_ERR_INVALID a byte that a vocabulary of characters lacks, with its place;
 * TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_tokenizer_encode(tt_tensor **out, const tt_tokenizer *tokenizer, const char *text,
                                                  size_t size);

/* Write the text of n tokens to `out`, at most `size` bytes of it, without a NUL (NULL with 0: nowhere); *length is
 * that of the whole text. A character may have several tokens: a text that is cut between them need not be UTF-8.
 * TT_ERR_INVALID names a token that the vocabulary lacks. */
TT_API TT_NODISCARD tt_status tt_tokenizer_decode(size_t *length, const tt_tokenizer *tokenizer, const int64_t *tokens,
                                                  int64_t n, char *out, size_t size);

/* NULL is allowed. */
TT_API void tt_tokenizer_free(tt_tokenizer *tokenizer);

TT_END_DECLS
#endif
