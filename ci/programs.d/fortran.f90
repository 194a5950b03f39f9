! Arrays, strings, formatted output, modules, and OpenMP's loops, reductions and tasks.
module shapes
  implicit none
  type :: point
    real(8) :: x, y
  contains
    procedure :: norm
  end type
contains
  pure real(8) function norm(self)
    class(point), intent(in) :: self
    norm = sqrt(self%x**2 + self%y**2)
  end function
  recursive integer function fib(n) result(r)
    integer, value :: n
    integer :: a, b
    if (n < 2) then
      r = n
      return
    end if
    !$omp task shared(a) if (n > 15)
    a = fib(n - 1)
    !$omp end task
    !$omp task shared(b) if (n > 15)
    b = fib(n - 2)
    !$omp end task
    !$omp taskwait
    r = a + b
  end function
end module

program main
  use omp_lib
  use shapes
  implicit none
  integer :: i, answer
  integer, parameter :: n = 200000
  real(8), allocatable :: a(:)
  real(8) :: total
  integer, save :: own = 0
  !$omp threadprivate(own)
  character(len=20) :: word
  allocate (a(n))
  call omp_set_num_threads(4)
  total = 0
  !$omp parallel do reduction(+:total)
  do i = 1, n
    a(i) = real(mod(i * 7919, 1000), 8) / 8
    total = total + a(i)
  end do
  print '(a, f14.3)', 'total ', total
  print '(a, f14.3)', 'sum   ', sum(a)
  !$omp parallel copyin(own)
  own = own + omp_get_thread_num()
  !$omp end parallel
  !$omp parallel
  !$omp single
  answer = fib(20)
  !$omp end single
  !$omp end parallel
  print *, 'fib', answer, matmul(reshape([1, 2, 3, 4], [2, 2]), [5, 6])
  print '(f8.4)', (point(real(i, 8), 4d0), i = 3, 3)
  write (word, '(i0, "/", z8.8)') 42, 48879
  print *, trim(word), len_trim(word)
  print *, norm(point(3d0, 4d0))
end program
