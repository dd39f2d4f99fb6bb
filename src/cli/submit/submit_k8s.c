#include "cli/submit/submission.h"

#include "base/error.h"
#include "net/secret.h"

#include <inttypes.h>
#include <string.h>

enum { STORE_PORT = 29500 };

/* Write a text as JSON, which is YAML, too. In a command "$(NAME)" would be replaced by a variable: "$$(NAME)" stands
 * for it. */
static void write_yaml_text(const char *text, bool is_of_command, FILE *out) {
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (is_of_command && c[0] == '$')
            fputc('$', out);
        if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\u%04x", *c);
        else
            fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    fputc('"', out);
}

static void write_head(const char *version, const char *kind, const tt__submission *s, FILE *out) {
    fprintf(out, "apiVersion: %s\nkind: %s\nmetadata:\n  name: \"%s\"\n", version, kind, s->name);
    if (s->name_space)
        fprintf(out, "  namespace: \"%s\"\n", s->name_space);
}

static void write_secret(const tt__submission *s, const char *secret, FILE *out) {
    fputs("# What proves that a pod belongs to the job. Keep this manifest to yourself, or print a new one.\n", out);
    write_head("v1", "Secret", s, out);
    fprintf(out, "stringData:\n  secret: \"%s\"\n---\n", secret);
}

static void write_service(const tt__submission *s, FILE *out) {
    fprintf(out, "# Gives the first pod a name, %s-0.%s, under which the others find its store.\n", s->name, s->name);
    write_head("v1", "Service", s, out);
    fprintf(out,
            "spec:\n  clusterIP: None\n  publishNotReadyAddresses: true\n  selector:\n    job-name: \"%s\"\n"
            "  ports:\n    - name: store\n      port: %d\n---\n",
            s->name, STORE_PORT);
}

static void write_variables(const tt__submission *s, FILE *out) {
    fprintf(out,
            "            - name: PET_NNODES\n"
            "              value: \"%" PRId64 "\"\n"
            "            - name: PET_NODE_RANK\n"
            "              valueFrom:\n"
            "                fieldRef:\n"
            "                  fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']\n"
            "            - name: PET_MASTER_ADDR\n"
            "              value: %s-0.%s\n"
            "            - name: PET_MASTER_PORT\n"
            "              value: \"%d\"\n"
            "            - name: PET_RDZV_ID\n"
            "              value: \"%s\"\n"
            "            - name: TT_SECRET\n"
            "              valueFrom:\n"
            "                secretKeyRef:\n"
            "                  name: \"%s\"\n"
            "                  key: secret\n",
            s->nodes, s->name, s->name, STORE_PORT, s->name, s->name);
}

/* A limit is a request, too; ranks' shared memory counts as the pod's memory, and needs no volume. */
static void write_limits(const tt__submission *s, FILE *out) {
    if (!s->cpus && !s->gpus && !s->memory_gib)
        return;
    fputs("          resources:\n            limits:\n", out);
    if (s->cpus)
        fprintf(out, "              cpu: %" PRId64 "\n", s->cpus);
    if (s->memory_gib)
        fprintf(out, "              memory: %" PRId64 "Gi\n", s->memory_gib);
    if (s->gpus)
        fprintf(out, "              nvidia.com/gpu: %" PRId64 "\n", s->gpus);
}

static void write_job(const tt__submission *s, FILE *out) {
    fprintf(out, "# A pod a node, each with a launcher that starts the ranks of that pod.%s\n",
            s->nodes > 1 ? " When one fails, all end." : "");
    write_head("batch/v1", "Job", s, out);
    fprintf(out,
            "spec:\n  completionMode: Indexed\n  completions: %" PRId64 "\n  parallelism: %" PRId64
            "\n  backoffLimit: 0\n  template:\n    spec:\n      restartPolicy: Never\n",
            s->nodes, s->nodes);
    if (s->nodes > 1)
        fprintf(out, "      subdomain: \"%s\"\n", s->name);
    if (s->warning_s)
        fprintf(out, "      terminationGracePeriodSeconds: %" PRId64 "\n", s->warning_s);
    fputs("      containers:\n        - name: tutti\n          image: ", out);
    write_yaml_text(s->image, false, out);
    fputs("\n          command:\n", out);
    for (char **word = s->command; *word; word++) {
        fputs("            - ", out);
        write_yaml_text(*word, true, out);
        fputc('\n', out);
    }
    bool says_grace = s->warning_s && !s->has_grace;
    if (s->nodes > 1 || says_grace)
        fputs("          env:\n", out);
    if (says_grace)
        fprintf(out,
                "            - name: TORCH_ELASTIC_SHUTDOWN_TIMEOUT\n"
                "              value: \"%" PRId64 "\"\n",
                tt__submission_grace_s(s));
    if (s->nodes > 1)
        write_variables(s, out);
    write_limits(s, out);
}

tt_status tt__submit_k8s(const tt__submission *s, FILE *out) {
    char secret[TT__SECRET_MADE_SIZE];
    if (s->nodes > 1) {
        TT__TRY(tt__secret_make(secret));
        write_secret(s, secret, out);
        explicit_bzero(secret, sizeof secret);
        write_service(s, out);
    }
    write_job(s, out);
    return TT_OK;
}
