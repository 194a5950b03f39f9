/* OpenBLAS beside scalar loops: matrix products of both precisions and of all transpositions, a triangular solve, and a system of equations by
   LAPACK. Prints what agrees; the loops say what is right. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
double cblas_ddot(int, const double *, int, const double *, int);
void cblas_daxpy(int, double, const double *, int, double *, int);
int cblas_idamax(int, const double *, int);
void dgesv_(int *, int *, double *, int *, int *, double *, int *, int *);
void dsyev_(const char *, const char *, int *, double *, int *, double *, double *, int *, int *);
void openblas_set_num_threads(int);

enum { ROW = 101, NO = 111, YES = 112 };

static double random_value(void) {
    static unsigned state = 12345;
    state = state * 1103515245u + 12345u;
    return (double)(state >> 16 & 0x7fff) / 16384.0 - 1.0;
}

static int wrong;
static void say(const char *what, int n, double error, double limit) {
    printf("%s %d: %s\n", what, n, error <= limit ? "as the loop" : "WRONG");
    if (!(error <= limit)) wrong = 1;
}

static void products(int n) {
    double *a = malloc(sizeof(double) * n * n), *b = malloc(sizeof(double) * n * n), *c = malloc(sizeof(double) * n * n);
    float *fa = malloc(sizeof(float) * n * n), *fb = malloc(sizeof(float) * n * n), *fc = malloc(sizeof(float) * n * n);
    for (int i = 0; i < n * n; i++) fa[i] = (float)(a[i] = random_value()), fb[i] = (float)(b[i] = random_value());
    for (int ta = 0; ta < 2; ta++)
        for (int tb = 0; tb < 2; tb++) {
            cblas_dgemm(ROW, ta ? YES : NO, tb ? YES : NO, n, n, n, 1.0, a, n, b, n, 0.0, c, n);
            cblas_sgemm(ROW, ta ? YES : NO, tb ? YES : NO, n, n, n, 1.0f, fa, n, fb, n, 0.0f, fc, n);
            double error = 0, ferror = 0;
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    double sum = 0;
                    for (int k = 0; k < n; k++) sum += (ta ? a[k * n + i] : a[i * n + k]) * (tb ? b[j * n + k] : b[k * n + j]);
                    error = fmax(error, fabs(sum - c[i * n + j]));
                    ferror = fmax(ferror, fabs(sum - fc[i * n + j]));
                }
            say("dgemm", n, error, 1e-12 * n);
            say("sgemm", n, ferror, 1e-4 * n);
        }
    free(a), free(b), free(c), free(fa), free(fb), free(fc);
}

static void equations(int n) {
    double *a = malloc(sizeof(double) * n * n), *copy = malloc(sizeof(double) * n * n), *x = malloc(sizeof(double) * n);
    double *b = malloc(sizeof(double) * n);
    int *pivots = malloc(sizeof(int) * n), one = 1, info;
    for (int i = 0; i < n * n; i++) copy[i] = a[i] = random_value() + (i % (n + 1) == 0 ? n : 0);
    for (int i = 0; i < n; i++) x[i] = b[i] = random_value();
    dgesv_(&n, &one, a, &n, pivots, x, &n, &info);
    double error = info;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < n; k++) sum += copy[k * n + i] * x[k];
        error = fmax(error, fabs(sum - b[i]));
    }
    say("dgesv", n, error, 1e-10 * n);
    free(a), free(copy), free(x), free(b), free(pivots);
}

static void eigenvalues(void) {
    double a[4] = {2, 1, 1, 2}, values[2], work[64];
    int n = 2, size = 64, info;
    dsyev_("V", "U", &n, a, &n, values, work, &size, &info);
    say("dsyev", n, fabs(values[0] - 1) + fabs(values[1] - 3) + info, 1e-12);
}

int main(void) {
    for (int threads = 1; threads <= 2; threads++) {
        openblas_set_num_threads(threads);
        for (int n = 1; n <= 129; n = n * 2 + 1) products(n);
        products(200);
        equations(150);
    }
    eigenvalues();
    double x[1000], y[1000], dot = 0;
    for (int i = 0; i < 1000; i++) x[i] = random_value(), y[i] = random_value(), dot += x[i] * y[i];
    say("ddot", 1000, fabs(cblas_ddot(1000, x, 1, y, 1) - dot), 1e-10);
    x[617] = -7;
    say("idamax", 1000, cblas_idamax(1000, x, 1) != 617, 0);
    return wrong;
}
