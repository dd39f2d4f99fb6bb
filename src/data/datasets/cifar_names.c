/* The classes of CIFAR-10 and CIFAR-100, in the order of their labels. */
#include "data/datasets/cifar.h"

static const char *const ten[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                  "dog",      "frog",       "horse", "ship", "truck"};

static const char *const fine[] = {
    "apple",      "aquarium_fish", "baby",         "bear",       "beaver",      "bed",         "bee",
    "beetle",     "bicycle",       "bottle",       "bowl",       "boy",         "bridge",      "bus",
    "butterfly",  "camel",         "can",          "castle",     "caterpillar", "cattle",      "chair",
    "chimpanzee", "clock",         "cloud",        "cockroach",  "couch",       "crab",        "crocodile",
    "cup",        "dinosaur",      "dolphin",      "elephant",   "flatfish",    "forest",      "fox",
    "girl",       "hamster",       "house",        "kangaroo",   "keyboard",    "lamp",        "lawn_mower",
    "leopard",    "lion",          "lizard",       "lobster",    "man",         "maple_tree",  "motorcycle",
    "mountain",   "mouse",         "mushroom",     "oak_tree",   "orange",      "orchid",      "otter",
    "palm_tree",  "pear",          "pickup_truck", "pine_tree",  "plain",       "plate",       "poppy",
    "porcupine",  "possum",        "rabbit",       "raccoon",    "ray",         "road",        "rocket",
    "rose",       "sea",           "seal",         "shark",      "shrew",       "skunk",       "skyscraper",
    "snail",      "snake",         "spider",       "squirrel",   "streetcar",   "sunflower",   "sweet_pepper",
    "table",      "tank",          "telephone",    "television", "tiger",       "tractor",     "train",
    "trout",      "tulip",         "turtle",       "wardrobe",   "whale",       "willow_tree", "wolf",
    "woman",      "worm"};

static const char *const coarse[] = {"aquatic_mammals",
                                     "fish",
                                     "flowers",
                                     "food_containers",
                                     "fruit_and_vegetables",
                                     "household_electrical_devices",
                                     "household_furniture",
                                     "insects",
                                     "large_carnivores",
                                     "large_man-made_outdoor_things",
                                     "large_natural_outdoor_scenes",
                                     "large_omnivores_and_herbivores",
                                     "medium_mammals",
                                     "non-insect_invertebrates",
                                     "people",
                                     "reptiles",
                                     "small_mammals",
                                     "trees",
                                     "vehicles_1",
                                     "vehicles_2"};

_Static_assert(sizeof ten / sizeof *ten == 10 && sizeof fine / sizeof *fine == 100, "a class lacks its name");
_Static_assert(sizeof coarse / sizeof *coarse == 20, "a superclass lacks its name");

const tt__cifar_label tt__cifar10_label = {1, 0, 10, ten};
const tt__cifar_label tt__cifar100_coarse = {2, 0, 20, coarse}, tt__cifar100_fine = {2, 1, 100, fine};
