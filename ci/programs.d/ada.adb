--  Tasks, protected objects, exceptions, generics, controlled types.
with Ada.Text_IO; use Ada.Text_IO;
with Ada.Finalization;
with Ada.Containers.Ordered_Maps;

procedure Ada_Program is
   type Guard is new Ada.Finalization.Controlled with null record;
   overriding procedure Finalize (Object : in out Guard);
   overriding procedure Finalize (Object : in out Guard) is
   begin
      Put_Line ("finalised");
   end Finalize;

   protected Counter is
      procedure Add (N : Integer);
      function Value return Integer;
   private
      Total : Integer := 0;
   end Counter;
   protected body Counter is
      procedure Add (N : Integer) is
      begin
         Total := Total + N;
      end Add;
      function Value return Integer is (Total);
   end Counter;

   package Maps is new Ada.Containers.Ordered_Maps (Integer, Integer);
   Squares : Maps.Map;

   procedure Run is
      task type Worker;
      task body Worker is
      begin
         for I in 1 .. 1000 loop
            Counter.Add (I);
         end loop;
      end Worker;
      Workers : array (1 .. 4) of Worker;
      pragma Unreferenced (Workers);
   begin
      null;
   end Run;
begin
   Run;
   Put_Line ("counted" & Counter.Value'Image);
   for I in 1 .. 5 loop
      Squares.Insert (I, I * I);
   end loop;
   for C in Squares.Iterate loop
      Put_Line (Maps.Key (C)'Image & Maps.Element (C)'Image);
   end loop;
   declare
      Here : Guard;
      pragma Unreferenced (Here);
      Zero : Integer := Squares.Element (1) - 1;
   begin
      Zero := 1 / Zero;
      Put_Line ("not reached" & Zero'Image);
   exception
      when Constraint_Error => Put_Line ("divided by zero");
   end;
end Ada_Program;
